"""MCP sessions over any of the three transports, with the official `mcp` package. Imported late, because that is slow.

`opened` gives a session. The same task must enter and leave it, because the package's cancel scopes belong to a task;
`connection` makes sure of that. Calls may come from any task.
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
from holdfast.ports.outbound import AddressBook, Unreachable
from holdfast.ports.stores.mcp_server_store import McpFailed, OfferedTool
from holdfast.ports.toolbox import ToolOutcome
from holdfast.tools.mcp import results
from holdfast.tools.mcp.guarded_http import MAX_RESPONSE_BYTES, Unreadable, http_client
from holdfast.tools.mcp.server_address import Address

IDEMPOTENCY_KEY = "holdfast/idempotency-key"
MAX_TOOLS = 1000
MAX_PAGES = 50

# The package logs addresses, arguments and whole responses, which may contain secrets. Failures are raised as errors.
for _name in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

# Errors that the package itself creates when there was no readable response.
_NO_RESPONSE = frozenset({types.CONNECTION_CLOSED, types.PARSE_ERROR})

_CALL_RESULT: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


class Session:
    """An open session. `ended` is set when the server disconnects; `refused` is the last HTTP error of a request."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.refused: int | None = None
        self._client: Client | None = None
        self._posts_get_responses = True

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    def on_refusal(self, method: str, status: int) -> None:
        if method != "POST":
            return
        self.refused = status
        if not self._posts_get_responses:
            self.ended.set()

    async def call(self, name: str, arguments: Mapping[str, Any], key: str) -> ToolOutcome:
        """Call a tool. Cancelling this coroutine sends the server a cancel notification."""
        self.refused = None
        meta = cast(types.RequestParamsMeta, {IDEMPOTENCY_KEY: key})
        params = types.CallToolRequestParams(name=name, arguments=dict(arguments), _meta=meta)
        request = types.CallToolRequest(params=params)
        try:
            result = await self.client.session.send_request(request, _CALL_RESULT)
        except MCPError as error:
            if error.code != types.HEADER_MISMATCH:
                raise
            await self.client.session.list_tools()  # only the listing says which arguments are sent as headers
            result = await self.client.session.send_request(request, _CALL_RESULT)
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
            _ObservedTransport(transport, session.ended),
            # The old transport does not support the new handshake, so trying it would waste a round trip.
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
        session._posts_get_responses = False  # a refused POST gets no other response, so it ends the session

        def factory(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
            return http_client(book, dict(address.headers), session.on_refusal)

        return sse_client(address.url, httpx_client_factory=factory)
    client = await stack.enter_async_context(http_client(book, dict(address.headers), session.on_refusal))
    return streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_RESPONSE_BYTES)


class _ObservedTransport:
    """Notices when the transport ends: the package reports that only to calls in progress."""

    def __init__(self, transport: Any, ended: asyncio.Event) -> None:
        self._transport = transport
        self._ended = ended

    async def __aenter__(self) -> Any:
        read, write = await self._transport.__aenter__()
        return _ObservedStream(read, self._ended), write

    async def __aexit__(self, *exit: Any) -> Any:
        return await self._transport.__aexit__(*exit)


class _ObservedStream:
    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    def __aiter__(self) -> _ObservedStream:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._ended.set()
            raise

    async def __aenter__(self) -> _ObservedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exit: Any) -> Any:
        return await self._stream.__aexit__(*exit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def failure_for(
    error: BaseException | None, address: Address, refused: int | None, *, begun: bool = False
) -> HoldfastError:
    """The error that describes a failure to a person or a model, without secrets and foreign tracebacks.

    Without an error, the server closed the session. `begun` is whether a call may already have had effects.
    """
    cause = _cause(error) if error else None
    if isinstance(cause, AskedWrongly):  # the address is wrong, which is the caller's error
        return cause
    what = _description(cause, refused)
    responded = isinstance(cause, MCPError) and cause.code not in _NO_RESPONSE and (refused or 0) < 500
    never_sent = isinstance(cause, Unreachable | httpx2.ConnectError | httpx2.ConnectTimeout)
    return McpFailed(f"The MCP server {address.server_name} {what}.", unsure=begun and not responded and not never_sent)


def _cause(error: BaseException) -> BaseException:
    """The first cause inside exception groups; one of Holdfast's own errors before any other."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    causes = [_cause(inner) for inner in error.exceptions]
    return next((cause for cause in causes if isinstance(cause, HoldfastError)), causes[0])


def _description(cause: BaseException | None, refused: int | None) -> str:
    status = cause.response.status_code if isinstance(cause, httpx2.HTTPStatusError) else refused
    if status in (401, 403):
        return f"does not accept our credentials (HTTP {status})"
    if status is not None and (status >= 500 or isinstance(cause, httpx2.HTTPStatusError)):
        return f"failed (HTTP {status})"
    match cause:
        case Unreachable() | McpFailed() | Unreadable():
            return f"cannot be used: {cause}"
        case MCPError() if cause.code not in _NO_RESPONSE:
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
    """Whether the error only says that the session ended, and not why."""
    return isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED


def is_session_expired(error: BaseException, session: Session) -> bool:
    """Whether the server has forgotten our session and therefore did not run the call.

    In the older protocol 404 means this; the newer protocol has no sessions.
    """
    handshake = session.client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
    return isinstance(error, MCPError) and session.refused == 404 and handshake
