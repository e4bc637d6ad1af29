"""Servers that lie, stall, break or lead inside: each is a clear error within its deadline, and nothing worse.

The rogues are plain sockets that say what a test wants. The toolbox is the real one, in this process.
"""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.core.errors import NotFound, TellTheModel
from holdfast.core.records import McpKind, McpServer
from holdfast.outbound.guarded_resolver import GuardedAddresses
from holdfast.ports.outbound import AddressBook, AddressRefused
from holdfast.ports.stores.mcp_server_store import McpFailed
from holdfast.ports.toolbox import ToolJob, ToolLimits
from holdfast.tools.mcp.connections import WIRE
from holdfast.tools.mcp.toolbox import McpToolbox

NOW = datetime(2026, 1, 1, tzinfo=UTC)
INSIDE = GuardedAddresses(allow_private=True)
SSE = "text/event-stream"
JSON = "application/json"
BOMB = gzip.compress(b" " * (20 * 1024 * 1024))


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """The library takes a while to import, which is not what these tests are about."""
    importlib.import_module(WIRE)


Says = Callable[[str, dict[str, Any], asyncio.StreamWriter], Awaitable[None]]


class Plain:
    """A seal that seals nothing."""

    def encrypt(self, text: str) -> str:
        return text

    def encrypt_again(self, text: str, before: str) -> str:
        return text

    def decrypt(self, text: str) -> str:
        return text


class OneServer:
    """A store with one server in it."""

    def __init__(self, server: McpServer) -> None:
        self.server = server

    async def get(self, org_id: str, server_id: str) -> McpServer:
        if server_id != self.server.id:
            raise NotFound("gone")
        return self.server


def server_at(url: str, kind: McpKind = "streamable_http") -> McpServer:
    return McpServer(
        id="mcp_server-1",
        org_id="org",
        server_name="rogue",
        kind=kind,
        revision="1",
        server_url=url,
        created_at=NOW,
        updated_at=NOW,
    )


@asynccontextmanager
async def toolbox(server: McpServer, book: AddressBook = INSIDE, seconds: float = 2.0) -> AsyncIterator[McpToolbox]:
    made = McpToolbox(OneServer(server), Plain(), book, connect_seconds=seconds, stdio=False)  # type: ignore[arg-type]
    yield made
    await made.close()


def job(seconds: float = 2.0) -> ToolJob:
    return ToolJob(
        call_id="call",
        name="act",
        source_code="",
        arguments={},
        idempotency_key="key",
        tool_type="external_mcp",
        mcp={"server_id": "mcp_server-1", "tool_name": "act"},
        org_id="org",
        agent_id="agent",
        limits=ToolLimits(wall_seconds=seconds),
    )


@asynccontextmanager
async def rogue(says: Says) -> AsyncIterator[str]:
    """Speaks HTTP/1.1 one request per connection; `says` is given the JSON-RPC method and message."""
    busy: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        busy.add(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            message = json.loads(body) if body else {}
            await says(message.get("method", head.split(" ")[0]), message, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
    finally:
        listener.close()
        for writer in busy:
            writer.close()


def answer(
    writer: asyncio.StreamWriter, body: bytes | str, *, kind: str = JSON, status: str = "200 OK", **more: str
) -> None:
    raw = body.encode() if isinstance(body, str) else body
    extra = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in more.items())
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(raw)}\r\nconnection: close\r\n{extra}\r\n"
    )
    writer.write(head.encode() + raw)


def handshake(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
    """The polite part: whether it was that."""
    if method == "initialize":
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "rogue", "version": "1"},
        }
        answer(writer, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))
    elif method == "notifications/initialized":
        answer(writer, b"", status="202 Accepted")
    elif method in ("server/discover", "GET"):
        answer(writer, b"no", kind="text/plain", status="404 Not Found")
    else:
        return False
    return True


def once_connected(does: Says) -> Says:
    async def says(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if not handshake(method, message, writer):
            await does(method, message, writer)

    return says


async def hangs(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def answers_500(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    answer(writer, b"oh dear", kind="text/plain", status="500 Internal Server Error")


async def answers_401(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    answer(writer, b"who are you", kind="text/plain", status="401 Unauthorized")


async def talks_garbage(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    answer(writer, b"{{{ not json \xff\xfe")


async def talks_html(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    answer(writer, b"<html>Welcome!</html>", kind="text/html")


async def talks_no_http(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")


async def hangs_up(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def breaks_off(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    writer.write(
        f"HTTP/1.1 200 OK\r\ncontent-type: {SSE}\r\ntransfer-encoding: chunked\r\n\r\n5\r\n: hi\n\r\n".encode()
    )
    await writer.drain()


async def floods(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    answer(writer, b" " * (20 * 1024 * 1024))
    await writer.drain()


def many_values(message: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": [0] * 300_000}})


async def answers_many_values(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    answer(writer, many_values(message))


async def streams_many_values(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """In an event after a small one, which does not count."""
    answer(writer, f": {'x,' * 150_000}\n\ndata: {many_values(message)}\n\n", kind=SSE)


async def streams_many_events(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """Each is small, and together they are larger than an answer may be."""
    error = {"code": -32602, "message": "no such tool"}
    last = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})
    answer(writer, f": {'x,' * 50_000}\n\n" * 20 + f"data: {last}\n\n", kind=SSE)


async def explodes(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    answer(writer, BOMB, content_encoding="gzip")


async def answers_nonsense(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    answer(writer, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": 7, "tools": 7}}))


async def refuses(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    error = {"code": -32602, "message": "no such tool"}
    answer(writer, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}))


FROM_THE_START = [
    hangs,
    answers_500,
    answers_401,
    talks_garbage,
    talks_html,
    talks_no_http,
    hangs_up,
    breaks_off,
    floods,
]


@pytest.mark.parametrize("kind", ["streamable_http", "sse"])
@pytest.mark.parametrize("says", FROM_THE_START, ids=lambda says: says.__name__)
async def test_a_server_that_is_none_is_a_failure_in_time(says: Says, kind: McpKind) -> None:
    async with rogue(says) as url, toolbox(server_at(url, kind), seconds=1.0) as box:
        began = time.monotonic()
        with pytest.raises(McpFailed, match="MCP server rogue"):
            await box.offered(server_at(url, kind), {})
        with pytest.raises(TellTheModel, match="MCP server rogue"):
            await box.run(job())
        assert time.monotonic() - began < 8


@pytest.mark.parametrize(
    ("does", "told", "unsure"),
    [
        (hangs, "did not answer within 1 s", True),
        (answers_500, "HTTP 500", True),
        (talks_garbage, "not MCP", True),
        (talks_html, "MCP", False),
        (hangs_up, "MCP", True),
        (breaks_off, "MCP", True),
        (floods, "larger than", True),
        (explodes, "compressed", True),
        (answers_many_values, "more than 200000 values", True),
        (streams_many_values, "MCP", True),
        (streams_many_events, "no such tool", False),
        (answers_nonsense, "not MCP", True),
        (refuses, "no such tool", False),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_a_server_that_misbehaves_during_a_call_is_told_to_the_model(does: Says, told: str, unsure: bool) -> None:
    async with rogue(once_connected(does)) as url, toolbox(server_at(url), seconds=5.0) as box:
        began = time.monotonic()
        with pytest.raises(TellTheModel, match=told) as failed:
            await box.run(job(seconds=1.0 if does is hangs else 20.0))
        assert ("not known whether" in str(failed.value)) is unsure
        assert time.monotonic() - began < 15


async def test_a_server_that_never_ends_its_list_is_stopped() -> None:
    async def lists(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        tool = {"name": f"t{message['id']}", "inputSchema": {"type": "object"}}
        result = {"tools": [tool], "nextCursor": "more"}
        answer(writer, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))

    async with rogue(once_connected(lists)) as url, toolbox(server_at(url), seconds=20) as box:
        with pytest.raises(McpFailed, match="more than 50 pages"):
            await box.offered(server_at(url), {})


async def test_a_hanging_server_delays_no_other_call() -> None:
    async with rogue(hangs) as url, toolbox(server_at(url), seconds=30) as box:
        stuck = asyncio.create_task(box.run(job(seconds=30)))
        late = 0.0
        for _ in range(20):
            began = time.monotonic()
            await asyncio.sleep(0.01)
            late = max(late, time.monotonic() - began)
        stuck.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        assert time.monotonic() - began < 1
        assert late < 1


# ---- where it leads ---------------------------------------------------------------------------------------------


class Rebinding:
    """A name that is outside the first time one asks, and inside from then on."""

    def __init__(self) -> None:
        self.asked = 0

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        if self.asked > 1:
            raise AddressRefused(f"{host} is not a public address")
        return ["127.0.0.1"]


async def test_a_name_is_looked_up_once_and_what_came_out_is_used() -> None:
    async with rogue(once_connected(refuses)) as url:
        port = url.rsplit(":", 1)[1].split("/")[0]
        server, book = server_at(f"http://shop.example:{port}/mcp"), Rebinding()
        async with toolbox(server, book) as box:
            with pytest.raises(TellTheModel, match="no such tool"):
                await box.run(job())
        assert book.asked == 1


@pytest.mark.parametrize("kind", ["streamable_http", "sse"])
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
async def test_a_redirect_leads_nowhere_inside(kind: McpKind, status: str) -> None:
    reached: list[str] = []

    async def inner(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        reached.append(method)
        answer(writer, b"the crown jewels")

    async with rogue(inner) as target:

        async def redirects(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
            answer(writer, b"", status=status, location=target)

        async with rogue(redirects) as url, toolbox(server_at(url, kind)) as box:
            with pytest.raises(McpFailed):
                await box.offered(server_at(url, kind), {})
    assert reached == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]"])
async def test_without_leave_nothing_inside_is_even_connected_to(host: str) -> None:
    reached: list[str] = []

    async def inner(method: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        reached.append(method)

    async with rogue(inner) as url:
        port = url.rsplit(":", 1)[1].split("/")[0]
        server = server_at(f"http://{host}:{port}/mcp")
        async with toolbox(server, GuardedAddresses(allow_private=False)) as box:
            with pytest.raises(AddressRefused, match="not a public address"):
                await box.offered(server, {})
            with pytest.raises(TellTheModel, match="not a public address"):
                await box.run(job())
    assert reached == []


async def test_a_program_that_was_allowed_once_is_refused_when_it_no_longer_is() -> None:
    server = replace(server_at("", "stdio"), server_url=None, command="touch", args=("/tmp/never",))
    async with toolbox(server) as box:
        with pytest.raises(TellTheModel, match="HOLDFAST_MCP_STDIO_UNSANDBOXED"):
            await box.run(job())
