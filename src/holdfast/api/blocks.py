"""Memory blocks over HTTP: /v1/blocks. An agent's own blocks are in `api.agent_parts`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import Field

from holdfast.api.agent_answers import answer_many
from holdfast.api.bodies import Wire, body_of
from holdfast.api.includes import Included
from holdfast.api.listing import sorted_by
from holdfast.api.parameters import LARGEST, AsActor, BlockId, InRooms, page
from holdfast.api.responses import Json
from holdfast.api.routing import routes
from holdfast.api.shapes_records import block_wire
from holdfast.ports.agents import AgentFilter
from holdfast.ports.blocks import BlockFilter
from holdfast.ports.paging import Page

router = routes("/v1/blocks", "blocks")

Agents = Annotated[int, Query(ge=-1, le=LARGEST)]  # how many a block is attached to


class ChangedBlock(Wire):
    """Every field of a block that a client may set; what is left out, or null, stays as it is."""

    label: str | None = Field(None, min_length=1)
    value: str | None = None
    limit: int | None = Field(None, ge=0, le=LARGEST)
    description: str | None = None
    read_only: bool | None = None
    hidden: bool | None = None
    is_template: bool | None = None
    metadata: dict[str, Any] | None = None
    tags: list[str] | None = None
    project_id: str | None = None
    template_name: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    entity_id: str | None = None
    preserve_on_migration: bool | None = None


class NewBlock(ChangedBlock):
    label: str = Field(min_length=1)
    value: str


async def _filter(
    label: str | None = None,
    templates_only: bool = False,
    name: str | None = None,
    tags: Annotated[list[str] | None, Query()] = None,
    match_all_tags: bool = False,
    project_id: str | None = None,
    label_search: str | None = None,
    description_search: str | None = None,
    value_search: str | None = None,
    connected_to_agents_count_gt: Agents | None = None,
    connected_to_agents_count_lt: Agents | None = None,
    connected_to_agents_count_eq: Annotated[list[Agents] | None, Query()] = None,
) -> BlockFilter:
    return BlockFilter(
        label=label,
        name=name,
        templates_only=templates_only,
        tags=tuple(tags or ()),
        match_all_tags=match_all_tags,
        project_id=project_id,
        label_search=label_search,
        description_search=description_search,
        value_search=value_search,
        agents_gt=connected_to_agents_count_gt,
        agents_lt=connected_to_agents_count_lt,
        agents_eq=tuple(connected_to_agents_count_eq or ()),
    )


Filter = Annotated[BlockFilter, Depends(_filter)]


@router.get("")
async def list_blocks(
    rooms: InRooms, actor: AsActor, wanted: Filter, page: Annotated[Page, page(default_order="asc")]
) -> Json:
    found = await rooms.blocks.listing(actor, wanted, sorted_by(page))
    return Json([block_wire(block) for block in found])


@router.post("")
async def create_block(rooms: InRooms, actor: AsActor, body: Annotated[NewBlock, body_of(NewBlock)]) -> Json:
    return Json(block_wire(await rooms.blocks.create(actor, body.given())))


@router.get("/count")
async def count_blocks(rooms: InRooms, actor: AsActor, wanted: Filter) -> Json:
    return Json(await rooms.blocks.count(actor, wanted))


@router.get("/{block_id}")
async def retrieve_block(rooms: InRooms, actor: AsActor, block_id: BlockId) -> Json:
    return Json(block_wire(await rooms.blocks.get(actor, block_id)))


@router.patch("/{block_id}")
async def modify_block(
    rooms: InRooms, actor: AsActor, block_id: BlockId, body: Annotated[ChangedBlock, body_of(ChangedBlock)]
) -> Json:
    return Json(block_wire(await rooms.blocks.change(actor, block_id, body.given())))


@router.delete("/{block_id}")
async def delete_block(rooms: InRooms, actor: AsActor, block_id: BlockId) -> Json:
    await rooms.blocks.delete(actor, block_id)
    return Json(None)


@router.get("/{block_id}/agents")
async def list_agents_for_block(
    rooms: InRooms, actor: AsActor, block_id: BlockId, included: Included, page: Annotated[Page, page()]
) -> Json:
    await rooms.blocks.get(actor, block_id)
    found = await rooms.agents.listing(actor, AgentFilter(block_id=block_id), sorted_by(page), included)
    return await answer_many(rooms, actor, found, included)
