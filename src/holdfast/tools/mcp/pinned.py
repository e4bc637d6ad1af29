"""How HTTP to an MCP server leaves us: only to addresses that were checked, and with bounded answers.

The `mcp` package brings its own HTTP client, so the guard sits where that client connects. A name is looked up once per
connection through `ports.outbound.AddressBook`, and requests go to the address that came out; there is no second
lookup that could say something else. TLS still proves the name. Every hop passes here, so a redirect is checked too.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable

import httpx2

from holdfast.ports.outbound import AddressBook

MAX_ANSWER_BYTES = 16 * 1024 * 1024
CONNECT_SECONDS = 15.0

_PORTS = {"http": 80, "https": 443}


class Unreadable(Exception):
    """The server answered with more than we read, or packed so that we cannot tell how much it is."""


class Pinned(httpx2.AsyncBaseTransport):
    """`refused` is told of every answer that is an HTTP error, since not everybody above looks at it."""

    def __init__(self, book: AddressBook, tls: ssl.SSLContext, refused: Callable[[str, int], None]) -> None:
        self._book = book
        self._refused = refused
        self._inner = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, retries=0)
        self._known: dict[tuple[str, int], list[str]] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host, port = request.url.host, request.url.port or _PORTS.get(request.url.scheme, 0)
        if (host, port) not in self._known:
            self._known[host, port] = list(await self._book.addresses(host, port))
        addresses = self._known[host, port]
        for place, address in enumerate(addresses):
            try:
                response = await self._inner.handle_async_request(_to(request, address, host))
                break
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if place == len(addresses) - 1:
                    raise
        if response.status_code >= 400:
            self._refused(request.method, response.status_code)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise Unreadable("its answer is compressed, which was not asked for")
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Bounded(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _to(request: httpx2.Request, address: str, host: str) -> httpx2.Request:
    """The same request to one address. The Host header is set already; `sni_hostname` is what TLS has to prove."""
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host},
    )


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for chunk in self._inner:
            length += len(chunk)
            if length > MAX_ANSWER_BYTES:
                raise Unreadable(f"its answer is larger than {MAX_ANSWER_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def http_client(book: AddressBook, headers: dict[str, str], refused: Callable[[str, int], None]) -> httpx2.AsyncClient:
    """Without proxies of the environment and without a read timeout: whoever calls has a deadline of its own."""
    return httpx2.AsyncClient(
        headers={**headers, "accept-encoding": "identity"},
        transport=Pinned(book, _TLS, refused),
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
        trust_env=False,
        follow_redirects=False,
    )


_TLS = ssl.create_default_context()
