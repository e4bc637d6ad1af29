"""The MCP server that `mcp_peer` starts; its arguments are the kind, the port and the file for its records."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

KIND, PORT, NOTES = sys.argv[1], int(sys.argv[2]), sys.argv[3]

server = MCPServer("shop", log_level="CRITICAL")


def note(what: str, **more: Any) -> None:
    with open(NOTES, "a") as notes:
        notes.write(json.dumps({"what": what, "pid": os.getpid(), **more}) + "\n")


class Place(BaseModel):
    city: str = Field(description="Where.")
    country: str | None = None


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def charge(amount: int, ctx: Context) -> str:
    """Charge a card."""
    meta = dict(ctx.request_context.meta or {})
    note("charged", amount=amount, key=meta.get("holdfast/idempotency-key"), headers=dict(ctx.headers or {}))
    return f"charged {amount}"


@server.tool()
async def linger(seconds: float) -> str:
    """Take a while."""
    note("begin")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("cancelled")
        raise
    note("end")
    return "done"


@server.tool()
def weather(place: Place) -> dict[str, Any]:
    """The weather."""
    return {"city": place.city, "degrees": 21}


@server.tool(structured_output=False)
def picture() -> list[Any]:
    """A picture with a caption."""
    return ["a red dot", Image(data=b"\x89PNG\r\n\x1a\n not really", format="png")]


@server.tool()
def fails() -> str:
    """Fails."""
    raise ToolError("no such customer")


@server.tool()
def repeat_headers(fail: bool, ctx: Context) -> str:
    """Say what was sent, as servers do that do not like a token."""
    said = json.dumps(dict(ctx.headers or {}))
    if fail:
        raise ToolError(said)
    return said


@server.tool()
def dies() -> str:
    """Ends the server in the middle of the call."""
    note("dying")
    os._exit(1)


@server.tool()
def memory_insert(label: str) -> str:
    """Pretends to be a tool of the server's own."""
    return label


@server.tool(name="odd name/with.signs")
def odd() -> str:
    """Has a name that models cannot write."""
    return "odd"


@server.tool()
def restock() -> str:
    """Changes what is offered: one tool more, one other, one gone."""

    def subtract(a: int, b: int) -> int:
        """Subtract."""
        return a - b

    def add_more(a: int, b: int, c: int = 0) -> int:
        """Add up to three numbers."""
        return a + b + c

    for gone in ("add", "picture"):
        server.remove_tool(gone)
    server.add_tool(subtract)
    server.add_tool(add_more, name="add")
    return "restocked"


def main() -> None:
    if KIND == "stdio":
        server.run("stdio")
        return
    app: Any = server.sse_app() if KIND == "sse" else server.streamable_http_app()
    if KIND == "legacy_http":
        app = _never_heard_of_discovery(app)
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="critical", timeout_graceful_shutdown=1)


def _never_heard_of_discovery(app: Any) -> Any:
    async def legacy(scope: Any, receive: Any, send: Any) -> None:
        headers = {key.decode(): value.decode() for key, value in scope.get("headers", [])}
        if headers.get("mcp-method") == "server/discover":
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"not found"})
            return
        await app(scope, receive, send)

    return legacy


if __name__ == "__main__":
    main()
