"""Stream a connection test of an MCP server: first that it is attempted, then the server's tools or the error.

Clients wait for `success`, `error` or `oauth_required`. Holdfast has no OAuth, so a server that wants credentials gives
an error that says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import orjson
from starlette.responses import StreamingResponse

from holdfast.api.responses.mcp_json import offered_json
from holdfast.core.errors import AskedWrongly
from holdfast.ports.stores.mcp_server_store import McpFailed, OfferedTool


async def connection_events(
    server_name: str, offered: Coroutine[Any, Any, Sequence[OfferedTool]]
) -> AsyncIterator[dict[str, Any]]:
    yield {"event": "connection_attempt", "server_name": server_name}
    try:
        tools = await offered
    except (McpFailed, AskedWrongly) as failed:
        yield {"event": "error", "server_name": server_name, "message": str(failed)}
        return
    yield {"event": "success", "server_name": server_name, "tools": [offered_json(tool) for tool in tools]}


def sse_response(events: AsyncIterator[dict[str, Any]]) -> StreamingResponse:
    async def lines() -> AsyncIterator[bytes]:
        async for event in events:
            yield b"data: " + orjson.dumps(event) + b"\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"cache-control": "no-cache"})
