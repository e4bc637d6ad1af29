"""Routes that clients call when they start or before a message: an agent's secrets and MCP servers, and lists that are
still empty here (folders, repositories).

Without them the terminal client with `--memfs`, and others, end with the 404.
"""

from __future__ import annotations

from typing import Annotated

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.parameters import ActorDep, AgentId, ServicesDep, page
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.api.responses.mcp_json import mcp_server_json
from holdfast.ports.paging import Page

router = lazy_router("/v1")


@router.get("/agents/{agent_id}/secrets")
async def list_secrets(services: ServicesDep, actor: ActorDep, agent_id: AgentId) -> JsonResponse:
    """As a retrieve that includes `agent.secrets` shows them, but only names and values."""
    view = await services.agents.get(actor, agent_id, frozenset({"secrets"}))
    return JsonResponse([{"key": key, "value": value} for key, value in view.agent.secrets.items()])


@router.get("/agents/{agent_id}/mcp-servers")
async def list_mcp_servers_for_agent(services: ServicesDep, actor: ActorDep, agent_id: AgentId) -> JsonResponse:
    """Every MCP server: they belong to the organisation, and an agent can have the tools of any."""
    await services.agents.get(actor, agent_id, frozenset())
    return JsonResponse([mcp_server_json(server) for server in await services.mcp_server_store.listing(actor)])


@router.get("/agents/{agent_id}/repositories")
async def list_repositories(services: ServicesDep, actor: ActorDep, agent_id: AgentId) -> JsonResponse:
    await services.agents.get(actor, agent_id, frozenset())
    return JsonResponse([])


@router.get("/agents/{agent_id}/folders")
async def list_folders_for_agent(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, asked: Annotated[Page, page(100)]
) -> JsonResponse:
    await services.agents.get(actor, agent_id, frozenset())
    return JsonResponse([])


@router.get("/folders")
async def list_folders(asked: Annotated[Page, page(50, "asc")], name: str | None = None) -> JsonResponse:
    """There are no folders yet, so no name matches one."""
    return JsonResponse([])


class CacheWarmIn(RequestBody):
    collection: str | None = None


@router.post("/_internal_search/cache-warm", status_code=202)
async def warm_search_cache(body: Annotated[CacheWarmIn, body_of(CacheWarmIn)]) -> JsonResponse:
    """The search reads the database and keeps nothing that could be warmed."""
    return JsonResponse({"collection": body.collection, "status": "ok", "warmed": True}, 202)
