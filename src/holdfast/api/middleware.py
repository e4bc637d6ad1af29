"""ASGI middleware in front of every route: authentication, cross-origin protection, body size, path normalization.

It is plain ASGI, so that a request without a credential is rejected before its body is read. The acting user comes
from the credential alone. The old `user_id` header is ignored: there is one user, and the best-known MCP server sends
an agent's id in it.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api.http.json_response import JsonResponse
from holdfast.core.records import Actor

OPEN_PATHS = frozenset({"/v1/health", "/v1/ready"})
MAX_LENGTH_DIGITS = 20
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


class AccessMiddleware:
    """Without a password, only programs on this machine and pages of this server may send requests."""

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
        scope["path"] = _normalized_path(scope["path"])
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        rejection = self._rejection(scope["path"], headers)
        if rejection is not None:
            await rejection(scope, receive, send)
            return
        scope.setdefault("state", {})["actor"] = self._actor
        await self._app(scope, _limited(receive, self._max_body_bytes), send)

    def _rejection(self, path: str, headers: dict[str, str]) -> JsonResponse | None:
        if self._password is None:
            if why := self._foreign_origin(headers):
                return JsonResponse({"detail": why}, 403)
            if _has_body(headers) and _media_type(headers) != "application/json":
                return JsonResponse({"detail": "Send the body with the header content-type: application/json."}, 415)
        if path.startswith("/v1") and path not in OPEN_PATHS and not self._is_authorized(headers):
            return JsonResponse({"detail": "Unauthorized"}, 401)
        length = headers.get("content-length", "0")
        if not _is_number(length) or int(length) > self._max_body_bytes:
            return JsonResponse({"detail": f"The body may have at most {self._max_body_bytes} bytes."}, 413)
        return None

    def _foreign_origin(self, headers: dict[str, str]) -> str | None:
        """Why a request is rejected when there is no password, or None.

        Only programs on this machine and pages that this server sent are allowed. Pages of other origins are rejected,
        also those of other servers on this machine: a browser names the page's origin in `Origin` and its relation to
        this server in `Sec-Fetch-Site`. Older browsers send neither header with some requests, but those requests
        cannot have a body of type application/json, which `_rejection` requires."""
        host = headers.get("host", "")
        if _name_of(host) not in self._hosts:
            return "This server answers only to its own name. Set HOLDFAST_PASSWORD to serve under another one."
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
            return f"Requests from the web page {origin} are refused. Set HOLDFAST_PASSWORD to let pages ask."
        if headers.get("sec-fetch-site", "none").lower() not in ("none", "same-origin"):
            return "Requests from web pages of other origins are refused. Set HOLDFAST_PASSWORD to let pages ask."
        return None

    def _is_authorized(self, headers: dict[str, str]) -> bool:
        if self._password is None:
            return True
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        bare = headers.get("x-bare-password", "").removeprefix("password ")
        return any(_equal(text, self._password) for text in (bearer, bare))


def _equal(header: str, password: str) -> bool:
    """Whether a header holds the password, encoded as UTF-8 or as Latin-1.

    HTTP does not define the encoding of header values, and clients send either. The header was decoded as Latin-1,
    which keeps its bytes. Both comparisons are always made, so that the time does not depend on which one matches."""
    sent = header.encode("latin-1")
    as_utf8 = hmac.compare_digest(sent, password.encode())
    as_latin1 = hmac.compare_digest(sent, password.encode("latin-1", "replace")) and _is_latin1(password)
    return as_utf8 or as_latin1


def _is_latin1(text: str) -> bool:
    return all(ord(letter) < 256 for letter in text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < MAX_LENGTH_DIGITS


def _has_body(headers: dict[str, str]) -> bool:
    return headers.get("content-length", "0").strip("0") != "" or "transfer-encoding" in headers


def _media_type(headers: dict[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _name_of(authority: str) -> str:
    """A host without its port; IPv6 addresses without their brackets."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0].lower()


def _normalized_path(path: str) -> str:
    """The path without a trailing slash, and with /v1 for /latest."""
    if path == "/latest" or path.startswith("/latest/"):
        path = f"/v1{path.removeprefix('/latest')}"
    return path.rstrip("/") or "/" if path != "/" else path


class BodyTooLarge(Exception):
    """Raised while a body without a `content-length` is read; `api.app` turns it into a 413."""


def _limited(receive: Callable[[], Awaitable[Message]], limit: int) -> Receive:
    """`receive`, which raises `BodyTooLarge` past the limit: a chunked body has no length to check beforehand."""
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > limit:
                raise BodyTooLarge
        return message

    return limited
