"""The one place that speaks MCP, with the official package. Imported late; see the package's own words.

`opened` gives a session over any of the three transports. It must be entered and left by one and the same task
(the package's cancel scopes belong to a task); `connections` sees to that. Calls may come from any task.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TextIO, cast

import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from holdfast import __version__
from holdfast.core.errors import AskedWrongly, HoldfastError
from holdfast.ports.mcp import McpFailed, OfferedTool
from holdfast.ports.outbound import AddressBook, Unreachable
from holdfast.ports.toolbox import ToolOutcome
from holdfast.tools.mcp import results
from holdfast.tools.mcp.addressing import Address
from holdfast.tools.mcp.pinned import MAX_ANSWER_BYTES, Unreadable, http_client

IDEMPOTENCY_KEY = "holdfast/idempotency-key"
MAX_TOOLS = 1000
MAX_PAGES = 50

# The package logs addresses, arguments and whole answers, and they may hold secrets. What matters is told as an error.
for _name in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

# Errors that the package makes up where the server gave no answer that could be read.
_NO_ANSWER = frozenset({types.CONNECTION_CLOSED, types.PARSE_ERROR})

_Called: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


class Session:
    """An open session. `ended` is set when the other side hung up; `refused` is its last HTTP error to a call."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.refused: int | None = None
        self._client: Client | None = None
        self._posts_are_answered = True

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    def on_refusal(self, method: str, status: int) -> None:
        if method != "POST":
            return
        self.refused = status
        if not self._posts_are_answered:
            self.ended.set()

    async def call(self, name: str, arguments: Mapping[str, Any], key: str) -> ToolOutcome:
        """Cancelling it tells the server so."""
        self.refused = None
        meta = cast(types.RequestParamsMeta, {IDEMPOTENCY_KEY: key})
        params = types.CallToolRequestParams(name=name, arguments=dict(arguments), _meta=meta)
        request = types.CallToolRequest(params=params)
        try:
            result = await self.client.session.send_request(request, _Called)
        except MCPError as error:
            if error.code != types.HEADER_MISMATCH:
                raise
            await self.client.session.list_tools()  # arguments that go as headers are known from the listing alone
            result = await self.client.session.send_request(request, _Called)
        if isinstance(result, types.InputRequiredResult):
            return ToolOutcome("error", "The tool wants to ask its user something, which is not supported here.")
        return results.outcome(result)

    async def offered(self) -> Sequence[OfferedTool]:
        found: list[OfferedTool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self.client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            found += [results.offered(tool) for tool in page.tools]
            cursor = page.next_cursor
            if len(found) > MAX_TOOLS:
                raise McpFailed(f"it offers more than {MAX_TOOLS} tools")
            if cursor is None:
                return found
        raise McpFailed(f"its list of tools has more than {MAX_PAGES} pages")


@asynccontextmanager
async def opened(address: Address, book: AddressBook) -> AsyncIterator[Session]:
    session = Session()
    async with AsyncExitStack() as stack:
        transport = await _transport(address, book, session, stack)
        client = Client(
            _Watched(transport, session.ended),
            # The old transport never learnt the new handshake, so asking for it would cost a round trip.
            mode="legacy" if address.kind == "sse" else "auto",
            client_info=types.Implementation(name="holdfast", version=__version__),
            cache=None,
        )
        session._client = await stack.enter_async_context(client)
        yield session


async def _transport(address: Address, book: AddressBook, session: Session, stack: AsyncExitStack) -> Any:
    if address.kind == "stdio":
        program = StdioServerParameters(command=address.command, args=list(address.args), env=dict(address.env))
        return stdio_client(program, errlog=cast(TextIO, subprocess.DEVNULL))
    if address.kind == "sse":
        session._posts_are_answered = False  # a refused POST is never heard of again, so it ends the session

        def factory(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
            return http_client(book, dict(address.headers), session.on_refusal)

        return sse_client(address.url, httpx_client_factory=factory)
    client = await stack.enter_async_context(http_client(book, dict(address.headers), session.on_refusal))
    return streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_ANSWER_BYTES)


class _Watched:
    """A transport whose end is noticed: the package tells only calls that are under way."""

    def __init__(self, transport: Any, ended: asyncio.Event) -> None:
        self._transport = transport
        self._ended = ended

    async def __aenter__(self) -> Any:
        read, write = await self._transport.__aenter__()
        return _Ending(read, self._ended), write

    async def __aexit__(self, *exit: Any) -> Any:
        return await self._transport.__aexit__(*exit)


class _Ending:
    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    def __aiter__(self) -> _Ending:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._ended.set()
            raise

    async def __aenter__(self) -> _Ending:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exit: Any) -> Any:
        return await self._stream.__aexit__(*exit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def told(error: BaseException | None, address: Address, refused: int | None, *, begun: bool = False) -> HoldfastError:
    """What went wrong, in words for a person or a model; secrets and foreign tracebacks stay out.

    No error at all is a session that the other side closed."""
    cause = _cause(error) if error else None
    if isinstance(cause, AskedWrongly):  # the address is the caller's fault, and not the server's
        return cause
    what = _what(cause, refused)
    answered = isinstance(cause, MCPError) and cause.code not in _NO_ANSWER and (refused or 0) < 500
    never_sent = isinstance(cause, Unreachable | httpx2.ConnectError | httpx2.ConnectTimeout)
    return McpFailed(f"The MCP server {address.server_name} {what}.", unsure=begun and not answered and not never_sent)


def _cause(error: BaseException) -> BaseException:
    """The first real reason inside groups of exceptions; one of ours before any other."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    causes = [_cause(inner) for inner in error.exceptions]
    return next((cause for cause in causes if isinstance(cause, HoldfastError)), causes[0])


def _what(cause: BaseException | None, refused: int | None) -> str:
    status = cause.response.status_code if isinstance(cause, httpx2.HTTPStatusError) else refused
    if status in (401, 403):
        return f"does not accept our credentials (HTTP {status})"
    if status is not None and (status >= 500 or isinstance(cause, httpx2.HTTPStatusError)):
        return f"failed (HTTP {status})"
    match cause:
        case Unreachable() | McpFailed() | Unreadable():
            return f"cannot be used: {cause}"
        case MCPError() if cause.code not in _NO_ANSWER:
            return f"answered with an error: {cause.error.message[:500]}"
        case MCPError(code=types.PARSE_ERROR) | ValidationError() | httpx2.SSEError() | UnicodeDecodeError():
            return "answered something that is not MCP"
        case FileNotFoundError() | PermissionError():
            return f"could not be started: {cause.strerror}"
        case httpx2.TransportError() | OSError():
            return f"could not be reached ({type(cause).__name__})"
        case None | MCPError():
            return "closed the connection"
        case _:
            return f"broke off ({type(cause).__name__})"


def is_closed(error: BaseException) -> bool:
    """Whether this only says that the session ended, and not why."""
    return isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED


def is_stale(error: BaseException, session: Session) -> bool:
    """Whether the server said that it has forgotten our session, and therefore did nothing. The newer protocol has no
    sessions that could be forgotten; in the older one this is what 404 means."""
    handshake = session.client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
    return isinstance(error, MCPError) and session.refused == 404 and handshake
