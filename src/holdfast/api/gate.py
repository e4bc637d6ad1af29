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
_USER_ID = re.compile(r"^user-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


class Gate:
    def __init__(self, app: ASGIApp, *, actor: Actor, password: str | None, max_body_bytes: int) -> None:
        self._app = app
        self._actor = actor
        self._password = password
        self._max_body_bytes = max_body_bytes

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

    def _may_enter(self, headers: dict[str, str]) -> bool:
        if self._password is None:
            return True
        given = headers.get("authorization", "").removeprefix("Bearer ")
        bare = headers.get("x-bare-password", "").removeprefix("password ")
        wanted = self._password.encode()
        return any(hmac.compare_digest(text.encode(), wanted) for text in (given, bare))


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
