"""The proxy's tunnels end with the tools that opened them, and go on for tools that only shut down writing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.tools.inside.confinement import Tier
from holdfast.tools.sandbox import egress_proxy
from holdfast.tools.sandbox.egress_proxy import MAX_CONNECTIONS, EgressProxy
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

from .conftest import options_for
from .processes import run

MANY_TUNNELS = """
import os, socket
def tool(port: int, tunnels: int) -> list:
    proxy = os.environ["HTTP_PROXY"].rpartition("//")[2].partition(":")
    kept, said = [], []
    for _ in range(tunnels):
        one = socket.create_connection((proxy[0], int(proxy[2].strip("/"))))
        one.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\\r\\n\\r\\n" % port)
        said.append(one.recv(1000).split()[1].decode())
        kept.append(one)
    return sorted(set(said))
"""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def anywhere(host: str, port: int) -> list[str]:
    return [host]


@asynccontextmanager
async def remote_host(serve: Serve) -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def proxy() -> AsyncIterator[tuple[EgressProxy, int]]:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    made = EgressProxy(anywhere)
    made.open(listener)
    try:
        yield made, listener.getsockname()[1]
    finally:
        await made.close()


async def tunnel(proxy_port: int, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy_port)
    writer.write(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % port)
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def test_a_tool_that_shut_down_writing_still_gets_its_answer() -> None:
    async def answers_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await reader.read()
        writer.write(said.upper())
        await writer.drain()
        writer.close()

    async with remote_host(answers_at_the_end) as port, proxy() as (_, proxy_port):
        reader, writer = await tunnel(proxy_port, port)
        writer.write(b"question")
        writer.write_eof()
        assert await reader.read() == b"QUESTION"
        writer.close()


async def test_a_tunnel_ends_soon_after_its_tool_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress_proxy, "HALF_CLOSED_SECONDS", 0.05)
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        try:
            while True:  # writing fails once the proxy has closed the connection
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.1)
        except OSError:
            ended.set()

    async with remote_host(silent) as port, proxy() as (_, proxy_port):
        _, writer = await tunnel(proxy_port, port)
        writer.close()
        async with asyncio.timeout(10):
            await ended.wait()


async def test_a_peer_that_takes_nothing_does_not_hold_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress_proxy, "WRITE_STALL_SECONDS", 0.2)
    hold = asyncio.Event()

    async def takes_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hold.wait()

    async with remote_host(takes_nothing) as port, proxy() as (_, proxy_port):
        _, writer = await tunnel(proxy_port, port)
        writer.write(b"x" * 30_000_000)
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(writer.drain(), 10)
        hold.set()


async def test_tunnels_of_ended_calls_do_not_use_up_the_connections(tier: Tier, scratch: Path) -> None:
    opened = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await asyncio.Event().wait()

    async with remote_host(silent) as port:
        toolbox = ProcessToolbox(scratch_root=scratch, network="public", resolve=anywhere, **options_for(tier))
        found = await toolbox.isolation()
        if not found.runs or found.network != "public":
            pytest.skip(f"tier {tier} with a bounded network cannot be had here: {found}")
        try:
            for _ in range(3):
                outcome = await run(toolbox, MANY_TUNNELS, {"port": port, "tunnels": MAX_CONNECTIONS - 8})
                assert outcome.content == '["200"]', outcome
        finally:
            await toolbox.close()
    assert opened == 3 * (MAX_CONNECTIONS - 8)
