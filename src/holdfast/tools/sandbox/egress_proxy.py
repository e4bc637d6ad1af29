"""The HTTP proxy through which tools with a `public` network reach the internet: it connects only to allowed addresses.

A tool's network contains only this proxy (tier A: an empty network namespace, whose one listening socket the server
accepts on; tier B: landlock allows connections only to the proxy's port). `HTTP_PROXY` and `HTTPS_PROXY` tell programs
where it is; a program that ignores them reaches nothing. CONNECT opens a tunnel, so TLS stays between the tool and the
remote host; plain HTTP is forwarded with one request per connection.

The host name is resolved here, once, by `resolve`, which refuses addresses that are not allowed; the connection goes to
the address that was checked. Requests are hostile: the size of heads, the number of connections and of lookups, the
buffers of sockets and idle time are limited.

A tunnel must not outlive its tool, or tunnels of ended calls use up the `MAX_CONNECTIONS` of the next ones. When a
tool's process dies, the proxy only sees an end of file, as if a living tool had shut down writing. So after an end of
file the remote host may be idle for `HALF_CLOSED_SECONDS`; and when no call is left that could wait for it
(`zygote_pool` knows), `end_connections` closes them all.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast.ports.outbound import AddressRefused, Unreachable

# Returns the addresses to try, like `ports.outbound.AddressBook`; raises `AddressRefused`, `Unreachable` or OSError.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 10.0
CONNECT_SECONDS = 15.0
IDLE_SECONDS = 600.0
HALF_CLOSED_SECONDS = 30.0  # idle time after the tool has shut down writing or died
WRITE_STALL_SECONDS = 60.0  # time in which one end reads nothing of what the other sent
CHUNK_BYTES = 64 * 1024
MAX_CONNECTIONS = 128
MAX_LOOKUPS = 4  # at once; a name server that does not answer must leave lookups to the tools of other tenants
# Of each socket in each direction. A remote host that reads nothing would otherwise make the kernel hold megabytes for
# each connection, which no limit counts; the small window also keeps the buffers of the tool's own socket small.
SOCKET_BUFFER_BYTES = 64 * 1024
_HOP_BY_HOP_HEADERS = {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate"}


class ProxyRequest(NamedTuple):
    """The host and port of a request, and the bytes to send there first; none for a tunnel."""

    host: str
    port: int
    head: bytes
    is_tunnel: bool


class EgressProxy:
    """Serves one listening socket until it is closed."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._server: asyncio.Server | None = None
        self._opening: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._lookups = asyncio.Semaphore(MAX_LOOKUPS)

    def open(self, listener: socket.socket) -> None:
        self._opening = asyncio.ensure_future(self._open(listener))

    async def _open(self, listener: socket.socket) -> None:
        _limit_buffers(listener)  # accepted sockets inherit it
        self._server = await asyncio.start_server(self._handle_connection, sock=listener, limit=HEAD_BYTES)

    def end_connections(self) -> None:
        """Close all connections. Called when all tools that could use them are dead."""
        for connection in self._connections:
            connection.cancel()

    async def close(self) -> None:
        if self._opening:
            await self._opening
        if self._server:
            self._server.close()
        self.end_connections()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) > MAX_CONNECTIONS:
                await _respond(writer, 503, "too many connections at once")
            else:
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # the tool or the remote host disconnected, or the proxy is closing: both ends are closed below
        except BaseExceptionGroup as group:  # from the two directions of a tunnel
            if group.split((OSError, asyncio.CancelledError))[1] is not None:
                raise
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        request = read_head(head)
        if request is None:
            await _respond(writer, 400, "this is a proxy; ask it for http:// URLs, or to CONNECT")
            return
        try:
            remote_reader, remote_writer = await self._connect(request)
        except AddressRefused as refused:
            await _respond(writer, 403, str(refused))
            return
        except (OSError, TimeoutError, Unreachable) as error:
            await _respond(writer, 502, f"{request.host} could not be reached: {str(error) or 'no answer'}")
            return
        try:
            remote_writer.write(request.head)
            if request.is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _pump_both(reader, writer, remote_reader, remote_writer)
        finally:
            remote_writer.close()

    async def _connect(self, request: ProxyRequest) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first address that accepts; all addresses are checked before any is tried."""
        async with asyncio.timeout(CONNECT_SECONDS):
            async with self._lookups:
                addresses = await self._resolve(request.host, request.port)
            failure: OSError = OSError("it has no address")
            for address in addresses:
                try:
                    return await _open_connection(address, request.port)
                except OSError as error:
                    failure = error
            raise failure


async def _open_connection(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    remote = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        _limit_buffers(remote)
        await asyncio.get_running_loop().sock_connect(remote, (address, port))
        return await asyncio.open_connection(sock=remote, limit=CHUNK_BYTES)
    except BaseException:
        remote.close()
        raise


def _limit_buffers(either: socket.socket) -> None:
    if either.family in (socket.AF_INET, socket.AF_INET6):
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            either.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)


def read_head(head: bytes) -> ProxyRequest | None:
    """The request in the first lines of a connection; None if it is not a request to a proxy."""
    first, _, rest = head.partition(b"\r\n")
    parts = first.split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
        return None
    method, target, version = parts
    try:
        if method == b"CONNECT":
            url = urlsplit(f"//{target.decode('ascii')}")
            return ProxyRequest(url.hostname, url.port, b"", True) if url.hostname and url.port else None
        url = urlsplit(target.decode("ascii"))
        if url.scheme != "http" or not url.hostname:
            return None
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        lines = [
            line for line in rest.split(b"\r\n") if line.partition(b":")[0].strip().lower() not in _HOP_BY_HOP_HEADERS
        ]
        forwarded = b"\r\n".join([b"%s %s %s" % (method, path.encode(), version), b"Connection: close", *lines])
        return ProxyRequest(url.hostname, url.port or 80, forwarded, False)
    except ValueError:  # an invalid port, or a target that is not ASCII
        return None


async def _respond(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    reason = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway", 503: "Service Unavailable"}[status]
    body = f"holdfast: {text}\n".encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
    await writer.drain()


async def _pump_both(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    remote_reader: asyncio.StreamReader,
    remote_writer: asyncio.StreamWriter,
) -> None:
    """Copy in both directions until both have ended or one has failed."""
    from_remote = _Pump(remote_reader, writer)
    async with asyncio.TaskGroup() as both:
        both.create_task(from_remote.run())
        await _Pump(reader, remote_writer).run()
        from_remote.limit_idle(HALF_CLOSED_SECONDS)


class _Pump:
    """Copies one direction until it ends or stays idle too long; the other direction may go on."""

    def __init__(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        self._source = source
        self._target = target
        self._idle_seconds = IDLE_SECONDS
        self._reading: asyncio.Timeout | None = None

    def limit_idle(self, seconds: float) -> None:
        """Set the idle timeout from now on, also for a read that is waiting."""
        self._idle_seconds = seconds
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time() + seconds)

    async def run(self) -> None:
        while chunk := await self._read():
            self._target.write(chunk)
            async with asyncio.timeout(WRITE_STALL_SECONDS):
                await self._target.drain()
        with contextlib.suppress(OSError, RuntimeError):
            self._target.write_eof()

    async def _read(self) -> bytes:
        try:
            async with asyncio.timeout(self._idle_seconds) as self._reading:
                return await self._source.read(CHUNK_BYTES)
        finally:
            self._reading = None
