"""The way out for tools whose network is bounded: an HTTP proxy that connects only to addresses it was told are fine.

A tool's network has nothing in it but this proxy (tier A: an empty network namespace, whose one listening socket the
server accepts on; tier B: landlock lets it connect to the proxy's port only). `HTTP_PROXY` and `HTTPS_PROXY` tell
programs where it is; whoever ignores them reaches nothing. CONNECT makes a tunnel, so TLS stays between the tool and
the other end; plain HTTP is passed on with one request for each connection.

The name is resolved here, once, by `resolve`, which refuses what is not allowed; the connection goes to the very
address that was checked. What a tool sends is hostile: heads, connections and silence are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast.ports.outbound import AddressRefused, Unreachable

# Gives the addresses to try, like `ports.outbound.AddressBook`; raises `AddressRefused`, `Unreachable` or OSError.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 10.0
CONNECT_SECONDS = 15.0
SILENCE_SECONDS = 600.0
CHUNK_BYTES = 64 * 1024
CONNECTIONS = 128
_NOT_PASSED_ON = {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate"}


class Wanted(NamedTuple):
    """Where a request wants to go, and what is to be sent there first; for a tunnel, nothing."""

    host: str
    port: int
    head: bytes
    is_tunnel: bool


class Egress:
    """Serves one listening socket until it is closed."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._server: asyncio.Server | None = None
        self._opening: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def open(self, listener: socket.socket) -> None:
        self._opening = asyncio.ensure_future(self._open(listener))

    async def _open(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._accepted, sock=listener, limit=HEAD_BYTES)

    async def close(self) -> None:
        if self._opening:
            await self._opening
        if self._server:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) > CONNECTIONS:
                await _answer(writer, 503, "too many connections at once")
            else:
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # the tool or the other end went away, or we are closing: both ends are closed below
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        wanted = read_head(head)
        if wanted is None:
            await _answer(writer, 400, "this is a proxy; ask it for http:// URLs, or to CONNECT")
            return
        try:
            there_reader, there_writer = await self._connected(wanted)
        except AddressRefused as refused:
            await _answer(writer, 403, str(refused))
            return
        except (OSError, TimeoutError, Unreachable) as error:
            await _answer(writer, 502, f"{wanted.host} could not be reached: {str(error) or 'no answer'}")
            return
        try:
            there_writer.write(wanted.head)
            if wanted.is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer))
        finally:
            there_writer.close()

    async def _connected(self, wanted: Wanted) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the first address that answers, all of them checked before any is tried."""
        async with asyncio.timeout(CONNECT_SECONDS):
            addresses = await self._resolve(wanted.host, wanted.port)
            failure: OSError = OSError("it has no address")
            for address in addresses:
                try:
                    return await asyncio.open_connection(address, wanted.port, limit=CHUNK_BYTES)
                except OSError as error:
                    failure = error
            raise failure


def read_head(head: bytes) -> Wanted | None:
    """What the first lines of a connection ask for; None if they are no request to a proxy."""
    first, _, rest = head.partition(b"\r\n")
    parts = first.split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
        return None
    method, target, version = parts
    try:
        if method == b"CONNECT":
            url = urlsplit(f"//{target.decode('ascii')}")
            return Wanted(url.hostname, url.port, b"", True) if url.hostname and url.port else None
        url = urlsplit(target.decode("ascii"))
        if url.scheme != "http" or not url.hostname:
            return None
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        lines = [line for line in rest.split(b"\r\n") if line.partition(b":")[0].strip().lower() not in _NOT_PASSED_ON]
        passed_on = b"\r\n".join([b"%s %s %s" % (method, path.encode(), version), b"Connection: close", *lines])
        return Wanted(url.hostname, url.port or 80, passed_on, False)
    except ValueError:  # a port that is none, a host that is no text
        return None


async def _answer(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    reason = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway", 503: "Service Unavailable"}[status]
    body = f"holdfast: {text}\n".encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
    await writer.drain()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """One direction until it ends or falls silent; the other may go on."""
    while True:
        async with asyncio.timeout(SILENCE_SECONDS):
            chunk = await source.read(CHUNK_BYTES)
        if not chunk:
            break
        target.write(chunk)
        await target.drain()
    with contextlib.suppress(OSError, RuntimeError):
        target.write_eof()
