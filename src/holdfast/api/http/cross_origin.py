"""Which web pages of other origins may send requests and read the responses (CORS).

`api.middleware` asks it. The origins come from the setting HOLDFAST_CORS_ORIGINS; without it, no page of another origin
is allowed. `*` allows every page, and the settings accept it only together with a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Message, Send

ANY = "*"
METHODS = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
PREFLIGHT_SECONDS = "600"
# What the official clients and our own pages read besides the headers that every page may read.
EXPOSED = (
    "retry-after, retry-after-ms, x-should-retry, x-upload-result, holdfast-ignored, holdfast-page-cut, "
    "last-event-id, content-length"
)
ADVICE = "add it to HOLDFAST_CORS_ORIGINS to let its pages in."

RawHeaders = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class CrossOrigin:
    """The origins whose pages may send requests and read the responses."""

    origins: frozenset[str] = frozenset()

    def allows(self, origin: str) -> bool:
        return ANY in self.origins or origin.lower() in self.origins

    def headers_for(self, origin: str) -> dict[str, str]:
        """The headers by which a browser shows the response to a page of this origin.

        No cookie ever matters here; `allow-credentials` is for pages that send all requests with credentials. Browsers
        ignore it together with `*`."""
        if not self.origins:
            return {}
        if ANY in self.origins:
            return {"access-control-allow-origin": ANY, "access-control-expose-headers": EXPOSED}
        if not self.allows(origin):
            return {"vary": "origin"}
        return {
            "access-control-allow-origin": origin,
            "access-control-allow-credentials": "true",
            "access-control-expose-headers": EXPOSED,
            "vary": "origin",
        }

    def preflight_response(self, headers: Mapping[str, str]) -> Response:
        """The response to a browser that asks whether a page of an allowed origin may send a request.

        The request headers are allowed as asked for, because `*` would not include `authorization`."""
        allowed = {"access-control-allow-methods": METHODS, "access-control-max-age": PREFLIGHT_SECONDS}
        if asked := headers.get("access-control-request-headers"):
            allowed["access-control-allow-headers"] = asked
        if headers.get("access-control-request-private-network", "").lower() == "true":
            allowed["access-control-allow-private-network"] = "true"
        return Response(status_code=204, headers=allowed)


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    return method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers


def with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    """`send` that adds the headers to the head of the response."""
    added: RawHeaders = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return send_with_headers
