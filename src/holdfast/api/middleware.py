"""ASGI middleware in front of every route: authentication, cross-origin rules, body size, HEAD, path normalization.

It is plain ASGI, so that a request without a credential is rejected before its body is read. The acting user comes
from the credential alone. The old `user_id` header is ignored: there is one user, and the best-known MCP server sends
an agent's id in it.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api.http.cross_origin import ADVICE, CrossOrigin, is_preflight, with_headers
from holdfast.api.http.head_requests import answer_head
from holdfast.api.http.json_response import JsonResponse
from holdfast.core.records import Actor

OPEN_PATHS = frozenset({"/v1/health", "/v1/ready"})
MAX_LENGTH_DIGITS = 20
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


class AccessMiddleware:
    """Without a password, only programs on this machine, pages of this server and pages of the origins in the settings
    may send requests."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        actor: Actor,
        password: str | None,
        max_body_bytes: int,
        host: str = "127.0.0.1",
        cors_origins: frozenset[str] = frozenset(),
    ) -> None:
        self._app = app
        self._actor = actor
        self._password = password
        self._max_body_bytes = max_body_bytes
        self._hosts = LOCAL_HOSTS | {host}
        self._cross_origin = CrossOrigin(cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["path"] = _normalized_path(scope["path"])
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        if "origin" in headers and (shown := self._cross_origin.headers_for(headers["origin"])):
            send = with_headers(send, shown)
        response = self._early_response(scope, headers)
        if response is not None:
            await response(scope, receive, send)
            return
        scope.setdefault("state", {})["actor"] = self._actor
        limited = _limited(receive, self._max_body_bytes)
        if scope["method"] == "HEAD":
            await answer_head(self._app, scope, limited, send)
        else:
            await self._app(scope, limited, send)

    def _early_response(self, scope: Scope, headers: dict[str, str]) -> Response | None:
        """The response to a request that no route sees: it is rejected, or it is a preflight. A preflight needs no
        password, because a browser cannot send one with it."""
        if is_preflight(scope["method"], headers):
            if why := self._foreign_host(headers) if self._password is None else None:
                return JsonResponse({"detail": why}, 403)
            if not self._cross_origin.allows(headers["origin"]):
                return JsonResponse({"detail": _refused_page(headers["origin"])}, 403)
            return self._cross_origin.preflight_response(headers)
        return self._rejection(scope["path"], headers)

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

    def _foreign_host(self, headers: dict[str, str]) -> str | None:
        """Why a request is rejected when there is no password and it was sent to another name, or None: a page whose
        own name leads to this machine would be of the same origin."""
        if _name_of(headers.get("host", "")) not in self._hosts:
            return "This server answers only to its own name. Set HOLDFAST_PASSWORD to serve under another one."
        return None

    def _foreign_origin(self, headers: dict[str, str]) -> str | None:
        """Why a request is rejected when there is no password, or None.

        Only programs on this machine, pages that this server sent and pages of the origins in the settings are allowed.
        Pages of other origins are rejected, also those of other servers on this machine: a browser names the page's
        origin in `Origin` and its relation to this server in `Sec-Fetch-Site`. Older browsers send neither header with
        some requests, but those requests cannot have a body of type application/json, which `_rejection` requires."""
        if why := self._foreign_host(headers):
            return why
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if origin is not None and self._cross_origin.allows(origin):
            return None
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            return _refused_page(origin)
        if headers.get("sec-fetch-site", "none").lower() not in ("none", "same-origin"):
            return f"A web page of another origin sent this request without naming its origin. Use fetch, and {ADVICE}"
        return None

    def _is_authorized(self, headers: dict[str, str]) -> bool:
        if self._password is None:
            return True
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        bare = headers.get("x-bare-password", "").removeprefix("password ")
        return any(_equal(text, self._password) for text in (bearer, bare))


def _refused_page(origin: str) -> str:
    if origin == "null":
        return "Requests from web pages without an origin, such as local files, are refused. Serve the page over HTTP."
    return f"Requests from web pages of the origin {origin} are refused; {ADVICE}"


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
