"""Routes for MCP servers and their tools: /v1/mcp-servers. The older routes are in `api.routes.mcp_legacy`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Path, Query
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.limits import FewEntries, Names
from holdfast.api.http.parameters import ActorDep, ServicesDep, ToolId, id_pattern
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.api.responses.mcp_connect_stream import connection_events, sse_response
from holdfast.api.responses.mcp_json import mcp_server_json, refreshed_json
from holdfast.api.responses.tool_and_block_json import tool_json
from holdfast.api.routes.tool_runs import ToolRun, execution_json
from holdfast.records.mcp.mcp_servers import McpServerConfig

router = lazy_router("/v1/mcp-servers", "mcp-servers")

ServerId = Annotated[str, Path(pattern=id_pattern("mcp_server"))]
Values = Annotated[dict[str, str], FewEntries]


async def _secrets_of_agent(
    services: ServicesDep, actor: ActorDep, agent_id: Annotated[str | None, Query(pattern=id_pattern("agent"))] = None
) -> Values:
    """The secrets of the agent in the query, if any; they fill the templates in a server's headers."""
    if agent_id is None:
        return {}
    return dict((await services.agents.get(actor, agent_id, frozenset({"secrets"}))).agent.secrets)


SecretsOfAgent = Annotated[Values, Depends(_secrets_of_agent)]


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerConfigIn(McpServerConfig):
    server_url: Annotated[str, Field(max_length=4000)] | None = None
    auth_header: Annotated[str, Field(max_length=200)] | None = None
    auth_token: Annotated[str, Field(max_length=16_000)] | None = None
    custom_headers: Annotated[Values, Field(max_length=100)] | None = None
    command: Annotated[str, Field(max_length=4000)] | None = None
    args: Names | None = None
    env: Values | None = None


class NewServer(RequestBody):
    server_name: str
    config: McpServerConfigIn


class ChangedServer(RequestBody):
    server_name: str | None = None
    config: McpServerConfigIn = Field(default_factory=McpServerConfigIn)


@router.get("")
async def list_mcp_servers(services: ServicesDep, actor: ActorDep) -> JsonResponse:
    return JsonResponse([mcp_server_json(server) for server in await services.mcp_server_store.listing(actor)])


@router.post("")
async def create_mcp_server(
    services: ServicesDep, actor: ActorDep, body: Annotated[NewServer, body_of(NewServer)]
) -> JsonResponse:
    return JsonResponse(mcp_server_json(await services.mcp_servers.create(actor, body.server_name, body.config)))


@router.get("/connect/{mcp_server_id}")
async def connect_mcp_server(services: ServicesDep, actor: ActorDep, mcp_server_id: ServerId) -> StreamingResponse:
    """Connect to the server and stream the result."""
    server = await services.mcp_server_store.get(actor.org_id, mcp_server_id)
    return sse_response(connection_events(server.server_name, services.mcp_servers.offered(actor, mcp_server_id)))


@router.get("/{mcp_server_id}")
async def retrieve_mcp_server(services: ServicesDep, actor: ActorDep, mcp_server_id: ServerId) -> JsonResponse:
    return JsonResponse(mcp_server_json(await services.mcp_server_store.get(actor.org_id, mcp_server_id)))


@router.patch("/{mcp_server_id}")
async def update_mcp_server(
    services: ServicesDep,
    actor: ActorDep,
    mcp_server_id: ServerId,
    body: Annotated[ChangedServer, body_of(ChangedServer)],
) -> JsonResponse:
    changed = await services.mcp_servers.change(actor, mcp_server_id, body.server_name, body.config)
    return JsonResponse(mcp_server_json(changed))


@router.delete("/{mcp_server_id}")
async def delete_mcp_server(services: ServicesDep, actor: ActorDep, mcp_server_id: ServerId) -> Response:
    await services.mcp_servers.delete(actor, mcp_server_id)
    return Response(status_code=204)


@router.patch("/{mcp_server_id}/refresh")
async def refresh_mcp_server_tools(
    services: ServicesDep, actor: ActorDep, mcp_server_id: ServerId, secrets: SecretsOfAgent
) -> JsonResponse:
    return JsonResponse(refreshed_json(await services.mcp_servers.refresh(actor, mcp_server_id, secrets)))


@router.get("/{mcp_server_id}/tools")
async def list_tools_of_mcp_server(services: ServicesDep, actor: ActorDep, mcp_server_id: ServerId) -> JsonResponse:
    return JsonResponse([tool_json(tool) for tool in await services.mcp_servers.tools(actor, mcp_server_id)])


@router.get("/{mcp_server_id}/tools/{tool_id}")
async def retrieve_tool_of_mcp_server(
    services: ServicesDep, actor: ActorDep, mcp_server_id: ServerId, tool_id: ToolId
) -> JsonResponse:
    return JsonResponse(tool_json(await services.mcp_servers.tool(actor, mcp_server_id, tool_id)))


@router.post("/{mcp_server_id}/tools/{tool_id}/run")
async def run_tool_of_mcp_server(
    services: ServicesDep,
    actor: ActorDep,
    mcp_server_id: ServerId,
    tool_id: ToolId,
    body: Annotated[ToolRun, body_of(ToolRun)],
) -> JsonResponse:
    tool = await services.mcp_servers.tool_for_direct_run(actor, mcp_server_id, tool_id)
    return JsonResponse(execution_json(await services.direct_tool_runs.run_alone(tool, body.args, {})))
