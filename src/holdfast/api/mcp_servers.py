"""MCP servers over HTTP: /v1/mcp-servers. The older routes are in `api.mcp_legacy`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from holdfast.api.bodies import Wire, body_of
from holdfast.api.mcp_connecting import as_stream, connecting
from holdfast.api.parameters import AsActor, InRooms, ToolId, id_pattern
from holdfast.api.responses import Json
from holdfast.api.routing import routes
from holdfast.api.shapes_mcp import mcp_server_wire, refreshed_wire
from holdfast.api.shapes_records import tool_wire
from holdfast.api.tool_runs import ToolRun, execution_wire

router = routes("/v1/mcp-servers", "mcp-servers")

ServerId = Annotated[str, Path(pattern=id_pattern("mcp_server"))]
Values = dict[str, str]


async def _secrets_of_agent(
    rooms: InRooms, actor: AsActor, agent_id: Annotated[str | None, Query(pattern=id_pattern("agent"))] = None
) -> Values:
    """With an agent, its secrets fill the templates in a server's headers."""
    if agent_id is None:
        return {}
    return dict((await rooms.agents.get(actor, agent_id, frozenset({"secrets"}))).agent.secrets)


SecretsOfAgent = Annotated[Values, Depends(_secrets_of_agent)]


class Config(Wire):
    """All three kinds of server; which fields count is for `records.mcp_servers` to say."""

    mcp_server_type: str | None = None
    server_url: str | None = Field(None, max_length=4000)
    auth_header: str | None = Field(None, max_length=200)
    auth_token: str | None = Field(None, max_length=16_000)
    custom_headers: Values | None = Field(None, max_length=100)
    command: str | None = Field(None, max_length=4000)
    args: list[str] | None = Field(None, max_length=1000)
    env: Values | None = Field(None, max_length=1000)


class NewServer(Wire):
    server_name: str
    config: Config


class ChangedServer(Wire):
    server_name: str | None = None
    config: Config = Field(default_factory=lambda: Config.model_validate({}))


@router.get("")
async def list_mcp_servers(rooms: InRooms, actor: AsActor) -> Json:
    return Json([mcp_server_wire(server) for server in await rooms.mcp_servers.listing(actor)])


@router.post("")
async def create_mcp_server(rooms: InRooms, actor: AsActor, body: Annotated[NewServer, body_of(NewServer)]) -> Json:
    return Json(mcp_server_wire(await rooms.mcp_servers.create(actor, body.server_name, body.config.given())))


@router.get("/connect/{mcp_server_id}")
async def connect_mcp_server(rooms: InRooms, actor: AsActor, mcp_server_id: ServerId) -> StreamingResponse:
    """Try it, and tell how it goes as a stream."""
    server = await rooms.mcp_servers.get(actor, mcp_server_id)
    return as_stream(connecting(server.server_name, rooms.mcp_servers.offered(actor, mcp_server_id)))


@router.get("/{mcp_server_id}")
async def retrieve_mcp_server(rooms: InRooms, actor: AsActor, mcp_server_id: ServerId) -> Json:
    return Json(mcp_server_wire(await rooms.mcp_servers.get(actor, mcp_server_id)))


@router.patch("/{mcp_server_id}")
async def update_mcp_server(
    rooms: InRooms, actor: AsActor, mcp_server_id: ServerId, body: Annotated[ChangedServer, body_of(ChangedServer)]
) -> Json:
    changed = await rooms.mcp_servers.change(actor, mcp_server_id, body.server_name, body.config.given())
    return Json(mcp_server_wire(changed))


@router.delete("/{mcp_server_id}")
async def delete_mcp_server(rooms: InRooms, actor: AsActor, mcp_server_id: ServerId) -> Response:
    await rooms.mcp_servers.delete(actor, mcp_server_id)
    return Response(status_code=204)


@router.patch("/{mcp_server_id}/refresh")
async def refresh_mcp_server_tools(
    rooms: InRooms, actor: AsActor, mcp_server_id: ServerId, secrets: SecretsOfAgent
) -> Json:
    return Json(refreshed_wire(await rooms.mcp_servers.refresh(actor, mcp_server_id, secrets)))


@router.get("/{mcp_server_id}/tools")
async def list_tools_of_mcp_server(rooms: InRooms, actor: AsActor, mcp_server_id: ServerId) -> Json:
    return Json([tool_wire(tool) for tool in await rooms.mcp_servers.tools(actor, mcp_server_id)])


@router.get("/{mcp_server_id}/tools/{tool_id}")
async def retrieve_tool_of_mcp_server(rooms: InRooms, actor: AsActor, mcp_server_id: ServerId, tool_id: ToolId) -> Json:
    return Json(tool_wire(await rooms.mcp_servers.tool(actor, mcp_server_id, tool_id)))


@router.post("/{mcp_server_id}/tools/{tool_id}/run")
async def run_tool_of_mcp_server(
    rooms: InRooms, actor: AsActor, mcp_server_id: ServerId, tool_id: ToolId, body: Annotated[ToolRun, body_of(ToolRun)]
) -> Json:
    tool = await rooms.mcp_servers.tool_for_hand(actor, mcp_server_id, tool_id)
    return Json(execution_wire(await rooms.by_hand.run_alone(tool, body.args, {})))
