"""Routes for the tools and memory blocks of an agent: list, attach, detach, edit, and set which tools need approval."""

from __future__ import annotations

from typing import Annotated

from fastapi import HTTPException
from pydantic import ConfigDict

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.parameters import (
    ActorDep,
    AgentId,
    BlockId,
    ModernClient,
    ServicesDep,
    ToolId,
    check_order_by,
    page,
)
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.api.responses.agent_json import memory_json
from holdfast.api.responses.agent_responses import agent_response
from holdfast.api.responses.tool_and_block_json import block_json, tool_json
from holdfast.api.routes.blocks import BlockPatchIn
from holdfast.api.services import Services
from holdfast.core.records import Actor
from holdfast.ports.paging import Page

router = lazy_router("/v1/agents/{agent_id}", "agents")


class ApprovalSetting(RequestBody):
    model_config = ConfigDict(extra="forbid")

    requires_approval: bool | None = None


async def _null_or_agent(services: Services, actor: Actor, agent_id: str, modern: bool) -> JsonResponse:
    """The response to a change of an agent's tools: null for a 1.x SDK, the agent for older clients."""
    return JsonResponse(None) if modern else await agent_response(services, actor, agent_id)


# ---- tools --------------------------------------------------------------------------------------------------


@router.get("/tools")
async def list_tools_for_agent(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, page: Annotated[Page, page(default_limit=10)]
) -> JsonResponse:
    found = await services.tool_store.of_agent(actor, agent_id, check_order_by(page))
    return JsonResponse([tool_json(tool) for tool in found])


@router.patch("/tools/attach/{tool_id}")
async def attach_tool_to_agent(
    services: ServicesDep, actor: ActorDep, modern: ModernClient, agent_id: AgentId, tool_id: ToolId
) -> JsonResponse:
    await services.agents.attach_tool(actor, agent_id, tool_id)
    return await _null_or_agent(services, actor, agent_id, modern)


@router.patch("/tools/detach/{tool_id}")
async def detach_tool_from_agent(
    services: ServicesDep, actor: ActorDep, modern: ModernClient, agent_id: AgentId, tool_id: ToolId
) -> JsonResponse:
    await services.agents.detach_tool(actor, agent_id, tool_id)
    return await _null_or_agent(services, actor, agent_id, modern)


@router.patch("/tools/approval/{tool_name}")
async def modify_approval_for_tool(
    services: ServicesDep,
    actor: ActorDep,
    modern: ModernClient,
    agent_id: AgentId,
    tool_name: str,
    body: Annotated[ApprovalSetting, body_of(ApprovalSetting)],
    requires_approval: bool | None = None,
) -> JsonResponse:
    """The body wins over the query parameter, which only older clients send."""
    wanted = requires_approval if body.requires_approval is None else body.requires_approval
    if wanted is None:
        raise HTTPException(422, "requires_approval must be provided either in request body or as query parameter")
    await services.agents.set_approval(actor, agent_id, tool_name, wanted)
    return await _null_or_agent(services, actor, agent_id, modern)


# ---- memory blocks ------------------------------------------------------------------------------------------


@router.get("/core-memory")
async def retrieve_agent_memory(services: ServicesDep, actor: ActorDep, agent_id: AgentId) -> JsonResponse:
    view = await services.agents.get(actor, agent_id, frozenset({"blocks"}))
    return JsonResponse(memory_json(view.agent.agent_type, view.blocks))


@router.get("/core-memory/blocks")
async def list_core_memory_blocks(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, page: Annotated[Page, page(default_limit=100)]
) -> JsonResponse:
    found = await services.block_store.of_agent(actor, agent_id, check_order_by(page))
    return JsonResponse([block_json(block) for block in found])


@router.patch("/core-memory/blocks/attach/{block_id}")
async def attach_core_memory_block(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, block_id: BlockId
) -> JsonResponse:
    await services.agents.attach_block(actor, agent_id, block_id)
    return await agent_response(services, actor, agent_id)


@router.patch("/core-memory/blocks/detach/{block_id}")
async def detach_core_memory_block(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, block_id: BlockId
) -> JsonResponse:
    await services.agents.detach_block(actor, agent_id, block_id)
    return await agent_response(services, actor, agent_id)


@router.get("/core-memory/blocks/{block_label}")
async def retrieve_core_memory_block(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, block_label: str
) -> JsonResponse:
    return JsonResponse(block_json(await services.block_store.by_label(actor, agent_id, block_label)))


@router.patch("/core-memory/blocks/{block_label}")
async def modify_core_memory_block(
    services: ServicesDep,
    actor: ActorDep,
    agent_id: AgentId,
    block_label: str,
    body: Annotated[BlockPatchIn, body_of(BlockPatchIn)],
) -> JsonResponse:
    return JsonResponse(block_json(await services.blocks.change_by_label(actor, agent_id, block_label, body)))
