"""Routes for memory blocks: list, count, create, read, modify and delete under /v1/blocks.

The routes for the blocks of one agent are in `api.routes.agent_attachments`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query
from pydantic import Field

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.limits import MAX_NAMES, Names, QueryNames, at_most
from holdfast.api.http.parameters import MAX_INT32, ActorDep, BlockId, ServicesDep, check_order_by, page
from holdfast.api.http.request_body import body_of
from holdfast.api.requests.agent_includes import Included
from holdfast.api.responses.agent_responses import agents_response
from holdfast.api.responses.tool_and_block_json import block_json
from holdfast.ports.paging import Page
from holdfast.ports.stores.agent_store import AgentFilter
from holdfast.ports.stores.block_store import BlockFilter
from holdfast.records.blocks import BlockPatch, NewBlock

router = lazy_router("/v1/blocks", "blocks")

Label = Annotated[str, Field(min_length=1)]
AgentCount = Annotated[int, Query(ge=-1, le=MAX_INT32)]  # how many agents a block is attached to


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPatchIn(BlockPatch):
    label: Label | None = None
    limit: Annotated[int, Field(ge=0, le=MAX_INT32)] | None = None
    tags: Names | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBlockIn(BlockPatchIn, NewBlock):
    label: Label
    value: str


async def _filter(
    label: str | None = None,
    templates_only: bool = False,
    name: str | None = None,
    tags: QueryNames = None,
    match_all_tags: bool = False,
    project_id: str | None = None,
    label_search: str | None = None,
    description_search: str | None = None,
    value_search: str | None = None,
    connected_to_agents_count_gt: AgentCount | None = None,
    connected_to_agents_count_lt: AgentCount | None = None,
    connected_to_agents_count_eq: Annotated[Annotated[list[AgentCount], at_most(MAX_NAMES)] | None, Query()] = None,
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
    services: ServicesDep, actor: ActorDep, wanted: Filter, page: Annotated[Page, page(default_order="asc")]
) -> JsonResponse:
    found = await services.block_store.listing(actor, wanted, check_order_by(page))
    return JsonResponse([block_json(block) for block in found])


@router.post("")
async def create_block(
    services: ServicesDep, actor: ActorDep, body: Annotated[NewBlockIn, body_of(NewBlockIn)]
) -> JsonResponse:
    return JsonResponse(block_json(await services.blocks.create(actor, body)))


@router.get("/count")
async def count_blocks(services: ServicesDep, actor: ActorDep, wanted: Filter) -> JsonResponse:
    return JsonResponse(await services.block_store.count(actor, wanted))


@router.get("/{block_id}")
async def retrieve_block(services: ServicesDep, actor: ActorDep, block_id: BlockId) -> JsonResponse:
    return JsonResponse(block_json(await services.block_store.get(actor, block_id)))


@router.patch("/{block_id}")
async def modify_block(
    services: ServicesDep, actor: ActorDep, block_id: BlockId, body: Annotated[BlockPatchIn, body_of(BlockPatchIn)]
) -> JsonResponse:
    return JsonResponse(block_json(await services.blocks.change(actor, block_id, body)))


@router.delete("/{block_id}")
async def delete_block(services: ServicesDep, actor: ActorDep, block_id: BlockId) -> JsonResponse:
    await services.block_store.delete(actor, block_id)
    return JsonResponse(None)


@router.get("/{block_id}/agents")
async def list_agents_for_block(
    services: ServicesDep, actor: ActorDep, block_id: BlockId, included: Included, page: Annotated[Page, page()]
) -> JsonResponse:
    await services.block_store.get(actor, block_id)
    found = await services.agents.listing(actor, AgentFilter(block_id=block_id), check_order_by(page), included)
    return await agents_response(services, actor, found, included)
