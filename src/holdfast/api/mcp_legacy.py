"""MCP servers by their names: /v1/tools/mcp/servers, as clients knew them before /v1/mcp-servers. The same records."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from starlette.responses import StreamingResponse

from holdfast.api.bodies import body_of
from holdfast.api.mcp_connecting import as_stream, connecting
from holdfast.api.mcp_servers import Config, SecretsOfAgent
from holdfast.api.parameters import AsActor, InRooms
from holdfast.api.responses import Json
from holdfast.api.rooms import Rooms
from holdfast.api.routing import routes
from holdfast.api.shapes_mcp import mcp_server_wire, offered_wire, refreshed_wire
from holdfast.api.shapes_records import tool_wire
from holdfast.api.tool_runs import ToolRun, execution_wire
from holdfast.core.errors import NotFound
from holdfast.core.records import Actor, McpServer, Tool

router = routes("/v1/tools/mcp/servers", "mcp")


class FlatServer(Config):
    """Name, kind and everything else in one object; a program's part may stand in `stdio_config`."""

    server_name: str | None = None
    type: str | None = None
    stdio_config: Config | None = None

    def config(self) -> dict[str, Any]:
        inner = self.stdio_config.given() if self.stdio_config else {}
        given = {**inner, **self.given()}
        kind = self.mcp_server_type or self.type or ("stdio" if self.stdio_config else None)
        return {**given, "mcp_server_type": kind}


class NamedServer(FlatServer):
    server_name: str = Field(min_length=1)


def flat_wire(server: McpServer) -> dict[str, Any]:
    shown = mcp_server_wire(server)
    if server.kind != "stdio":
        return {**shown, "type": server.kind}
    inner = {name: shown[name] for name in ("server_name", "command", "args", "env")}
    return {**shown, "type": server.kind, "stdio_config": {**inner, "type": "stdio"}}


async def _all(rooms: Rooms, actor: Actor) -> list[dict[str, Any]]:
    return [flat_wire(server) for server in await rooms.mcp_servers.listing(actor)]


async def _tool(rooms: Rooms, actor: Actor, server_name: str, tool_name: str) -> tuple[McpServer, Tool]:
    """By the name that its server gave it, or the one it has here."""
    server = await rooms.mcp_servers.named(actor, server_name)
    for tool in await rooms.mcp_servers.tools(actor, server.id):
        if tool_name in (tool.name, (tool.mcp or {}).get("tool_name")):
            return server, tool
    raise NotFound(f"The MCP server {server_name} has no tool {tool_name}; refresh it if it is new.")


@router.get("")
async def list_mcp_servers_by_name(rooms: InRooms, actor: AsActor) -> Json:
    return Json({server["server_name"]: server for server in await _all(rooms, actor)})


@router.put("")
async def add_mcp_server(rooms: InRooms, actor: AsActor, body: Annotated[NamedServer, body_of(NamedServer)]) -> Json:
    await rooms.mcp_servers.create(actor, body.server_name, body.config())
    return Json(await _all(rooms, actor))


@router.post("/test")
async def test_mcp_server(rooms: InRooms, actor: AsActor, body: Annotated[NamedServer, body_of(NamedServer)]) -> Json:
    tools = await rooms.mcp_servers.probe(actor, body.server_name, body.config())
    return Json({"status": "success", "tools": [offered_wire(tool) for tool in tools]})


@router.post("/connect")
async def connect_to_mcp_server(
    rooms: InRooms, actor: AsActor, body: Annotated[NamedServer, body_of(NamedServer)]
) -> StreamingResponse:
    return as_stream(connecting(body.server_name, rooms.mcp_servers.probe(actor, body.server_name, body.config())))


@router.patch("/{server_name}")
async def update_mcp_server_by_name(
    rooms: InRooms, actor: AsActor, server_name: str, body: Annotated[FlatServer, body_of(FlatServer)]
) -> Json:
    server = await rooms.mcp_servers.named(actor, server_name)
    return Json(flat_wire(await rooms.mcp_servers.change(actor, server.id, body.server_name, body.config())))


@router.delete("/{server_name}")
async def delete_mcp_server_by_name(rooms: InRooms, actor: AsActor, server_name: str) -> Json:
    await rooms.mcp_servers.delete(actor, (await rooms.mcp_servers.named(actor, server_name)).id)
    return Json(await _all(rooms, actor))


@router.post("/{server_name}/resync")
async def resync_mcp_server_tools(rooms: InRooms, actor: AsActor, server_name: str, secrets: SecretsOfAgent) -> Json:
    server = await rooms.mcp_servers.named(actor, server_name)
    return Json(refreshed_wire(await rooms.mcp_servers.refresh(actor, server.id, secrets)))


@router.get("/{server_name}/tools")
async def list_mcp_tools_by_server(rooms: InRooms, actor: AsActor, server_name: str) -> Json:
    """What the server offers at this moment, in its own words."""
    server = await rooms.mcp_servers.named(actor, server_name)
    return Json([offered_wire(tool) for tool in await rooms.mcp_servers.offered(actor, server.id)])


@router.post("/{server_name}/tools/{tool_name}/execute")
async def execute_mcp_tool(
    rooms: InRooms, actor: AsActor, server_name: str, tool_name: str, body: Annotated[ToolRun, body_of(ToolRun)]
) -> Json:
    server, found = await _tool(rooms, actor, server_name, tool_name)
    tool = await rooms.mcp_servers.tool_for_hand(actor, server.id, found.id)
    return Json(execution_wire(await rooms.by_hand.run_alone(tool, body.args, {})))


@router.post("/{server_name}/{tool_name}")
async def add_mcp_tool(rooms: InRooms, actor: AsActor, server_name: str, tool_name: str) -> Json:
    """All of a server's tools are kept from the start, so there is nothing to add but what is new."""
    try:
        _, tool = await _tool(rooms, actor, server_name, tool_name)
    except NotFound:
        await rooms.mcp_servers.refresh(actor, (await rooms.mcp_servers.named(actor, server_name)).id)
        _, tool = await _tool(rooms, actor, server_name, tool_name)
    return Json(tool_wire(tool))
