"""The gate in front of every route: spelling of paths, size of bodies, and who is asking.

Plain ASGI, so that a request without a credential is refused before its body is read. The acting user comes from
the credential alone; the old `user_id` header is checked for its form, as clients expect, and otherwise ignored.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api.responses import Json
from holdfast.core.records import Actor

OPEN_PATHS = frozenset({"/v1/health", "/v1/ready"})
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
_USER_ID = re.compile(r"^user-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


class Gate:
    def __init__(
        self, app: ASGIApp, *, actor: Actor, password: str | None, max_body_bytes: int, host: str = "127.0.0.1"
    ) -> None:
        self._app = app
        self._actor = actor
        self._password = password
        self._max_body_bytes = max_body_bytes
        self._hosts = LOCAL_HOSTS | {host}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["path"] = _spelling(scope["path"])
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        refusal = self._refusal(scope["path"], headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        scope.setdefault("state", {})["actor"] = self._actor
        await self._app(scope, _counted(receive, self._max_body_bytes), send)

    def _refusal(self, path: str, headers: dict[str, str]) -> Json | None:
        if self._password is None and (why := self._comes_from_elsewhere(headers)):
            return Json({"detail": why}, 403)
        if path.startswith("/v1") and path not in OPEN_PATHS and not self._may_enter(headers):
            return Json({"detail": "Unauthorized"}, 401)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._max_body_bytes:
            return Json({"detail": f"The body may have at most {self._max_body_bytes} bytes."}, 413)
        user_id = headers.get("user_id")
        if user_id is not None and not _USER_ID.match(user_id):
            text = f"INVALID_ARGUMENT: Invalid user ID format: {user_id}. Expected format: 'user-<uuid4>'"
            return Json({"detail": text}, 400)
        return None

    def _comes_from_elsewhere(self, headers: dict[str, str]) -> str | None:
        """Without a password, only programs on this machine may ask. A web page must not be able to, whatever name it
        makes point here; browsers tell on themselves by `Origin`, and by the body types they may send unasked."""
        if _name_of(headers.get("host", "")) not in self._hosts:
            return "This server answers only to its own name. Set HOLDFAST_PASSWORD to serve under another one."
        origin = headers.get("origin")
        if origin is not None and _name_of(origin.partition("://")[2]) not in self._hosts:
            return f"Requests from the web page {origin} are refused. Set HOLDFAST_PASSWORD to let pages ask."
        if headers.get("content-type", "").startswith("text/plain"):
            return "A body of type text/plain is refused; send application/json."
        return None

    def _may_enter(self, headers: dict[str, str]) -> bool:
        if self._password is None:
            return True
        given = headers.get("authorization", "").removeprefix("Bearer ")
        bare = headers.get("x-bare-password", "").removeprefix("password ")
        wanted = self._password.encode()
        return any(hmac.compare_digest(text.encode(), wanted) for text in (given, bare))


def _name_of(authority: str) -> str:
    """A host without its port; IPv6 addresses without their brackets."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0].lower()


def _spelling(path: str) -> str:
    """Both spellings of a trailing slash are one path, and /latest is /v1."""
    if path == "/latest" or path.startswith("/latest/"):
        path = f"/v1{path.removeprefix('/latest')}"
    return path.rstrip("/") or "/" if path != "/" else path


class BodyTooLarge(Exception):
    pass


def _counted(receive: Callable[[], Awaitable[Message]], limit: int) -> Receive:
    """A body that comes without a length is counted as it comes; past the limit the rest is not read."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > limit:
                raise BodyTooLarge
        return message

    return counted
