"""Older routes for MCP servers, by name: /v1/tools/mcp/servers. They use the same records as /v1/mcp-servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import StreamingResponse

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.parameters import ActorDep, ServicesDep
from holdfast.api.http.request_body import body_of
from holdfast.api.responses.mcp_connect_stream import connection_events, sse_response
from holdfast.api.responses.mcp_json import mcp_server_json, offered_json, refreshed_json
from holdfast.api.responses.tool_and_block_json import tool_json
from holdfast.api.routes.mcp_servers import McpServerConfigIn, SecretsOfAgent
from holdfast.api.routes.tool_runs import ToolRun, execution_json
from holdfast.api.services import Services
from holdfast.core.errors import NotFound
from holdfast.core.records import Actor, McpServer, Tool
from holdfast.records.mcp.mcp_servers import McpServerConfig
from holdfast.records.sent_fields import sent_fields

router = lazy_router("/v1/tools/mcp/servers", "mcp")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatServer(McpServerConfigIn):
    """Name, type and configuration in one object; the fields of a stdio server may be inside `stdio_config`."""

    server_name: str | None = None
    type: str | None = None
    stdio_config: McpServerConfigIn | None = None

    def config(self) -> McpServerConfig:
        inner = sent_fields(self.stdio_config, McpServerConfig) if self.stdio_config else {}
        kind = self.mcp_server_type or self.type or ("stdio" if self.stdio_config else None)
        return McpServerConfig(**inner | sent_fields(self, McpServerConfig) | {"mcp_server_type": kind})


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedServer(FlatServer):
    server_name: Annotated[str, Field(min_length=1)]


def flat_json(server: McpServer) -> dict[str, Any]:
    shown = mcp_server_json(server)
    if server.kind != "stdio":
        return {**shown, "type": server.kind}
    inner = {name: shown[name] for name in ("server_name", "command", "args", "env")}
    return {**shown, "type": server.kind, "stdio_config": {**inner, "type": "stdio"}}


async def _all(services: Services, actor: Actor) -> list[dict[str, Any]]:
    return [flat_json(server) for server in await services.mcp_server_store.listing(actor)]


async def _tool(services: Services, actor: Actor, server_name: str, tool_name: str) -> tuple[McpServer, Tool]:
    """A tool by the name that its server uses, or by its name in Holdfast."""
    server = await services.mcp_server_store.named(actor.org_id, server_name)
    for tool in await services.mcp_servers.tools(actor, server.id):
        if tool_name in (tool.name, (tool.mcp or {}).get("tool_name")):
            return server, tool
    raise NotFound(f"The MCP server {server_name} has no tool {tool_name}; refresh it if it is new.")


@router.get("")
async def list_mcp_servers_by_name(services: ServicesDep, actor: ActorDep) -> JsonResponse:
    return JsonResponse({server["server_name"]: server for server in await _all(services, actor)})


@router.put("")
async def add_mcp_server(
    services: ServicesDep, actor: ActorDep, body: Annotated[NamedServer, body_of(NamedServer)]
) -> JsonResponse:
    await services.mcp_servers.create(actor, body.server_name, body.config())
    return JsonResponse(await _all(services, actor))


@router.post("/test")
async def test_mcp_server(
    services: ServicesDep, actor: ActorDep, body: Annotated[NamedServer, body_of(NamedServer)]
) -> JsonResponse:
    tools = await services.mcp_servers.probe(actor, body.server_name, body.config())
    return JsonResponse({"status": "success", "tools": [offered_json(tool) for tool in tools]})


@router.post("/connect")
async def connect_to_mcp_server(
    services: ServicesDep, actor: ActorDep, body: Annotated[NamedServer, body_of(NamedServer)]
) -> StreamingResponse:
    return sse_response(
        connection_events(body.server_name, services.mcp_servers.probe(actor, body.server_name, body.config()))
    )


@router.patch("/{server_name}")
async def update_mcp_server_by_name(
    services: ServicesDep, actor: ActorDep, server_name: str, body: Annotated[FlatServer, body_of(FlatServer)]
) -> JsonResponse:
    server = await services.mcp_server_store.named(actor.org_id, server_name)
    return JsonResponse(flat_json(await services.mcp_servers.change(actor, server.id, body.server_name, body.config())))


@router.delete("/{server_name}")
async def delete_mcp_server_by_name(services: ServicesDep, actor: ActorDep, server_name: str) -> JsonResponse:
    await services.mcp_servers.delete(actor, (await services.mcp_server_store.named(actor.org_id, server_name)).id)
    return JsonResponse(await _all(services, actor))


@router.post("/{server_name}/resync")
async def resync_mcp_server_tools(
    services: ServicesDep, actor: ActorDep, server_name: str, secrets: SecretsOfAgent
) -> JsonResponse:
    server = await services.mcp_server_store.named(actor.org_id, server_name)
    return JsonResponse(refreshed_json(await services.mcp_servers.refresh(actor, server.id, secrets)))


@router.get("/{server_name}/tools")
async def list_mcp_tools_by_server(services: ServicesDep, actor: ActorDep, server_name: str) -> JsonResponse:
    """The tools that the server offers now, in MCP's own format."""
    server = await services.mcp_server_store.named(actor.org_id, server_name)
    return JsonResponse([offered_json(tool) for tool in await services.mcp_servers.offered(actor, server.id)])


@router.post("/{server_name}/tools/{tool_name}/execute")
async def execute_mcp_tool(
    services: ServicesDep, actor: ActorDep, server_name: str, tool_name: str, body: Annotated[ToolRun, body_of(ToolRun)]
) -> JsonResponse:
    server, found = await _tool(services, actor, server_name, tool_name)
    tool = await services.mcp_servers.tool_for_direct_run(actor, server.id, found.id)
    return JsonResponse(execution_json(await services.direct_tool_runs.run_alone(tool, body.args, {})))


@router.post("/{server_name}/{tool_name}")
async def add_mcp_tool(services: ServicesDep, actor: ActorDep, server_name: str, tool_name: str) -> JsonResponse:
    """All tools of a server are stored when it is added, so only a tool that is new since then needs a refresh."""
    try:
        _, tool = await _tool(services, actor, server_name, tool_name)
    except NotFound:
        await services.mcp_servers.refresh(actor, (await services.mcp_server_store.named(actor.org_id, server_name)).id)
        _, tool = await _tool(services, actor, server_name, tool_name)
    return JsonResponse(tool_json(tool))
