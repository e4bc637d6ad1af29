"""What is attached to an agent, over HTTP: its tools, which of them ask a human first, and its memory blocks."""

from __future__ import annotations

from typing import Annotated

from fastapi import HTTPException
from pydantic import ConfigDict

from holdfast.api.agent_answers import answer_one
from holdfast.api.blocks import ChangedBlock
from holdfast.api.bodies import Wire, body_of
from holdfast.api.listing import sorted_by
from holdfast.api.parameters import AgentId, AsActor, BlockId, InRooms, Modern, ToolId, page
from holdfast.api.responses import Json
from holdfast.api.rooms import Rooms
from holdfast.api.routing import routes
from holdfast.api.shapes_agents import memory_wire
from holdfast.api.shapes_records import block_wire, tool_wire
from holdfast.core.records import Actor
from holdfast.ports.paging import Page

router = routes("/v1/agents/{agent_id}", "agents")


class WantsApproval(Wire):
    model_config = ConfigDict(extra="forbid")

    requires_approval: bool | None = None


async def _null_or_agent(rooms: Rooms, actor: Actor, agent_id: str, modern: bool) -> Json:
    """Changes of an agent's tools answer a 1.x SDK with null, and older clients with the agent."""
    return Json(None) if modern else await answer_one(rooms, actor, agent_id)


# ---- tools --------------------------------------------------------------------------------------------------


@router.get("/tools")
async def list_tools_for_agent(
    rooms: InRooms, actor: AsActor, agent_id: AgentId, page: Annotated[Page, page(default_limit=10)]
) -> Json:
    found = await rooms.tools.of_agent(actor, agent_id, sorted_by(page))
    return Json([tool_wire(tool) for tool in found])


@router.patch("/tools/attach/{tool_id}")
async def attach_tool_to_agent(
    rooms: InRooms, actor: AsActor, modern: Modern, agent_id: AgentId, tool_id: ToolId
) -> Json:
    await rooms.agents.attach_tool(actor, agent_id, tool_id)
    return await _null_or_agent(rooms, actor, agent_id, modern)


@router.patch("/tools/detach/{tool_id}")
async def detach_tool_from_agent(
    rooms: InRooms, actor: AsActor, modern: Modern, agent_id: AgentId, tool_id: ToolId
) -> Json:
    await rooms.agents.detach_tool(actor, agent_id, tool_id)
    return await _null_or_agent(rooms, actor, agent_id, modern)


@router.patch("/tools/approval/{tool_name}")
async def modify_approval_for_tool(
    rooms: InRooms,
    actor: AsActor,
    modern: Modern,
    agent_id: AgentId,
    tool_name: str,
    body: Annotated[WantsApproval, body_of(WantsApproval)],
    requires_approval: bool | None = None,
) -> Json:
    """The body says it; the query parameter is the older way and counts only without one."""
    wanted = requires_approval if body.requires_approval is None else body.requires_approval
    if wanted is None:
        raise HTTPException(422, "requires_approval must be provided either in request body or as query parameter")
    await rooms.agents.set_approval(actor, agent_id, tool_name, wanted)
    return await _null_or_agent(rooms, actor, agent_id, modern)


# ---- memory blocks ------------------------------------------------------------------------------------------


@router.get("/core-memory")
async def retrieve_agent_memory(rooms: InRooms, actor: AsActor, agent_id: AgentId) -> Json:
    view = await rooms.agents.get(actor, agent_id, frozenset({"blocks"}))
    return Json(memory_wire(view.agent.agent_type, view.blocks))


@router.get("/core-memory/blocks")
async def list_core_memory_blocks(
    rooms: InRooms, actor: AsActor, agent_id: AgentId, page: Annotated[Page, page(default_limit=100)]
) -> Json:
    found = await rooms.blocks.of_agent(actor, agent_id, sorted_by(page))
    return Json([block_wire(block) for block in found])


@router.patch("/core-memory/blocks/attach/{block_id}")
async def attach_core_memory_block(rooms: InRooms, actor: AsActor, agent_id: AgentId, block_id: BlockId) -> Json:
    await rooms.agents.attach_block(actor, agent_id, block_id)
    return await answer_one(rooms, actor, agent_id)


@router.patch("/core-memory/blocks/detach/{block_id}")
async def detach_core_memory_block(rooms: InRooms, actor: AsActor, agent_id: AgentId, block_id: BlockId) -> Json:
    await rooms.agents.detach_block(actor, agent_id, block_id)
    return await answer_one(rooms, actor, agent_id)


@router.get("/core-memory/blocks/{block_label}")
async def retrieve_core_memory_block(rooms: InRooms, actor: AsActor, agent_id: AgentId, block_label: str) -> Json:
    return Json(block_wire(await rooms.blocks.by_label(actor, agent_id, block_label)))


@router.patch("/core-memory/blocks/{block_label}")
async def modify_core_memory_block(
    rooms: InRooms,
    actor: AsActor,
    agent_id: AgentId,
    block_label: str,
    body: Annotated[ChangedBlock, body_of(ChangedBlock)],
) -> Json:
    return Json(block_wire(await rooms.blocks.change_by_label(actor, agent_id, block_label, body.given())))
