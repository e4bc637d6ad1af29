"""The HTTP client for MCP servers: it connects only to checked addresses and limits the size of responses.

The `mcp` package accepts an HTTP client, so the check is in that client's transport. A name is resolved once per
session through `ports.outbound.AddressBook`, and requests go to the resolved address; there is no second lookup that
could give another result. TLS still verifies the name. Every request passes here, so a redirect is checked too.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Callable

import httpx2

from holdfast.ports.outbound import AddressBook

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
# A response is parsed on the event loop. Each of its JSON values but the first of a list comes after a comma.
MAX_VALUES = 200_000
CONNECT_SECONDS = 15.0

_BLANK_LINE = re.compile(rb"\n\n|\r\n\r\n|\r\r")
_PORTS = {"http": 80, "https": 443}


class Unreadable(Exception):
    """The response is too large, or compressed so that its size is unknown."""


class PinnedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to checked addresses. `on_refusal` is called for every HTTP error, because not every caller sees
    it.
    """

    def __init__(self, book: AddressBook, tls: ssl.SSLContext, on_refusal: Callable[[str, int], None]) -> None:
        self._book = book
        self._on_refusal = on_refusal
        self._inner = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, retries=0)
        self._addresses: dict[tuple[str, int], list[str]] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host, port = request.url.host, request.url.port or _PORTS.get(request.url.scheme, 0)
        if (host, port) not in self._addresses:
            self._addresses[host, port] = list(await self._book.addresses(host, port))
        addresses = self._addresses[host, port]
        for index, address in enumerate(addresses):
            try:
                response = await self._inner.handle_async_request(_addressed_to(request, address, host))
                break
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if index == len(addresses) - 1:
                    raise
        if response.status_code >= 400:
            self._on_refusal(request.method, response.status_code)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise Unreadable("its response is compressed, which was not requested")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        of_events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        response.stream = _LimitedStream(response.stream, of_events)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _addressed_to(request: httpx2.Request, address: str, host: str) -> httpx2.Request:
    """The same request to one address. The Host header is already set; TLS verifies `sni_hostname`."""
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host},
    )


class _LimitedStream(httpx2.AsyncByteStream):
    """Limits what is parsed at once: the whole response, or in a stream `of_events` each event."""

    def __init__(self, inner: httpx2.AsyncByteStream, of_events: bool) -> None:
        self._inner = inner
        self._of_events = of_events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = commas = 0
        tail = b""  # of the chunk before: a blank line may be split
        async for chunk in self._inner:
            length -= len(tail)
            for number, piece in enumerate(_BLANK_LINE.split(tail + chunk) if self._of_events else (chunk,)):
                length, commas = (0, 0) if number else (length, commas)
                length, commas = length + len(piece), commas + piece.count(b",")
                if length > MAX_RESPONSE_BYTES:
                    raise Unreadable(f"its response is larger than {MAX_RESPONSE_BYTES} bytes")
                if commas > MAX_VALUES:
                    raise Unreadable(f"its answer has more than {MAX_VALUES} values")
            tail = chunk[-3:] if self._of_events else b""
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def http_client(
    book: AddressBook, headers: dict[str, str], on_refusal: Callable[[str, int], None]
) -> httpx2.AsyncClient:
    """A client without proxies from the environment and without a read timeout, because every caller has its own
    deadline.
    """
    return httpx2.AsyncClient(
        headers={**headers, "accept-encoding": "identity"},
        transport=PinnedTransport(book, _TLS, on_refusal),
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
        trust_env=False,
        follow_redirects=False,
    )


_TLS = ssl.create_default_context()
