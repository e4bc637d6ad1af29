"""Trying an MCP server, told as a stream: first that it is tried, then its tools or what went wrong.

Clients of the older routes wait for `success`, `error` or `oauth_required`; we have no OAuth, so a server that wants
credentials is an error which says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import orjson
from starlette.responses import StreamingResponse

from holdfast.api.shapes_mcp import offered_wire
from holdfast.core.errors import AskedWrongly
from holdfast.ports.mcp import McpFailed, OfferedTool


async def connecting(
    server_name: str, offered: Coroutine[Any, Any, Sequence[OfferedTool]]
) -> AsyncIterator[dict[str, Any]]:
    yield {"event": "connection_attempt", "server_name": server_name}
    try:
        tools = await offered
    except (McpFailed, AskedWrongly) as failed:
        yield {"event": "error", "server_name": server_name, "message": str(failed)}
        return
    yield {"event": "success", "server_name": server_name, "tools": [offered_wire(tool) for tool in tools]}


def as_stream(events: AsyncIterator[dict[str, Any]]) -> StreamingResponse:
    async def lines() -> AsyncIterator[bytes]:
        async for event in events:
            yield b"data: " + orjson.dumps(event) + b"\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"cache-control": "no-cache"})
