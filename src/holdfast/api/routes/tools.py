"""Routes for tools: list, count, create, search, read, modify and delete under /v1/tools.

The routes for the tools of one agent are in `api.routes.agent_attachments`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends
from pydantic import ConfigDict, Field, PlainValidator

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.limits import Names, QueryNames, SearchText, at_most
from holdfast.api.http.parameters import ActorDep, ServicesDep, ToolId, check_order_by, page
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.api.responses.tool_and_block_json import tool_json
from holdfast.core.errors import Invalid
from holdfast.core.records import BUILT_IN_TYPES
from holdfast.ports.package_requirements import MOST_REQUIREMENTS, requirement_text
from holdfast.ports.paging import Page
from holdfast.ports.stores.tool_store import ToolFilter
from holdfast.records.tools import NewTool, ToolPatch

router = lazy_router("/v1/tools", "tools")

TOOL_TYPES = ("custom", *sorted(BUILT_IN_TYPES), "external_langchain", "external_composio", "external_mcp")


class _Requirement(RequestBody):
    """A package that a tool needs."""

    name: str = Field(min_length=1)
    version: str | None = None


def _npm_requirement(sent: Any) -> dict[str, Any]:
    return _Requirement.model_validate(sent).model_dump(exclude_unset=True)


def _pip_requirement(sent: Any) -> dict[str, Any]:
    requirement = _npm_requirement(sent)
    requirement_text(requirement["name"], requirement.get("version"))
    return requirement


PipRequirements = Annotated[
    list[Annotated[dict[str, Any], PlainValidator(_pip_requirement)]], at_most(MOST_REQUIREMENTS)
]
NpmRequirements = Annotated[
    list[Annotated[dict[str, Any], PlainValidator(_npm_requirement)]], at_most(MOST_REQUIREMENTS)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPatchIn(ToolPatch):
    __pydantic_config__ = ConfigDict(populate_by_name=True)

    tags: Names | None = None
    return_char_limit: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    pip_requirements: PipRequirements | None = None
    npm_requirements: NpmRequirements | None = None
    metadata: Annotated[dict[str, Any] | None, Field(alias="metadata_")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToolIn(ToolPatchIn, NewTool):
    source_code: str


def _parts(sent: Sequence[str] | None) -> tuple[str, ...] | None:
    """The values of a query parameter that may be repeated, and may hold several values with commas between them."""
    if sent is None:
        return None
    return tuple(part for value in sent for one in value.split(",") if (part := one.strip()))


def _types(sent: Sequence[str] | None) -> tuple[str, ...] | None:
    types = _parts(sent)
    for kind in types or ():
        if kind not in TOOL_TYPES:
            raise Invalid(f"Invalid tool_type '{kind}'. Must be one of: {', '.join(TOOL_TYPES)}")
    return types


async def _filter(
    name: str | None = None,
    names: QueryNames = None,
    tool_ids: QueryNames = None,
    search: str | None = None,
    tool_types: QueryNames = None,
    exclude_tool_types: QueryNames = None,
    return_only_letta_tools: bool = False,
    exclude_letta_tools: bool = False,
) -> ToolFilter:
    types, excluded = _types(tool_types), _types(exclude_tool_types)
    if return_only_letta_tools:
        types = tuple(kind for kind in sorted(BUILT_IN_TYPES) if types is None or kind in types)
    return ToolFilter(
        name=name,
        names=None if names is None else tuple(names),
        ids=_parts(tool_ids),
        search=search,
        types=types,
        exclude_types=(*(excluded or ()), *(BUILT_IN_TYPES if exclude_letta_tools else ())),
    )


Filter = Annotated[ToolFilter, Depends(_filter)]


@router.get("")
async def list_tools(
    services: ServicesDep, actor: ActorDep, wanted: Filter, page: Annotated[Page, page()]
) -> JsonResponse:
    if page.after is None:
        await services.tools.restore_base_tools(actor)
    found = await services.tool_store.listing(actor, wanted, check_order_by(page))
    return JsonResponse([tool_json(tool) for tool in found])


@router.post("")
async def create_tool(
    services: ServicesDep, actor: ActorDep, body: Annotated[NewToolIn, body_of(NewToolIn)]
) -> JsonResponse:
    return JsonResponse(tool_json(await services.tools.put(actor, body)))


@router.put("")
async def upsert_tool(
    services: ServicesDep, actor: ActorDep, body: Annotated[NewToolIn, body_of(NewToolIn)]
) -> JsonResponse:
    return JsonResponse(tool_json(await services.tools.put(actor, body)))


@router.get("/count")
async def count_tools(services: ServicesDep, actor: ActorDep, wanted: Filter) -> JsonResponse:
    await services.tools.restore_base_tools(actor)
    return JsonResponse(await services.tool_store.count(actor, wanted))


@router.post("/add-base-tools")
async def add_base_tools(services: ServicesDep, actor: ActorDep) -> JsonResponse:
    return JsonResponse([tool_json(tool) for tool in await services.tools.add_base_tools(actor)])


class ToolSearch(RequestBody):
    query: SearchText | None = None
    search_mode: Literal["vector", "fts", "hybrid"] = "hybrid"
    tool_types: Names | None = None
    tags: Names | None = None
    limit: int = Field(50, ge=1, le=100)


@router.post("/search")
async def search_tools(
    services: ServicesDep, actor: ActorDep, body: Annotated[ToolSearch, body_of(ToolSearch)]
) -> JsonResponse:
    """Every `search_mode` searches by words: there are no embeddings yet."""
    types = None if body.tool_types is None else tuple(body.tool_types)
    wanted = ToolFilter(types=types, tags=tuple(body.tags or ()))
    found = await services.tools.search(actor, wanted, body.query, body.limit)
    return JsonResponse(
        [
            {
                "tool": tool_json(one.tool),
                "embedded_text": one.text,
                "fts_rank": rank if body.query else None,
                "vector_rank": None,
                "combined_score": one.score,
            }
            for rank, one in enumerate(found, start=1)
        ]
    )


@router.get("/{tool_id}")
async def retrieve_tool(services: ServicesDep, actor: ActorDep, tool_id: ToolId) -> JsonResponse:
    return JsonResponse(tool_json(await services.tool_store.get(actor, tool_id)))


@router.patch("/{tool_id}")
async def modify_tool(
    services: ServicesDep, actor: ActorDep, tool_id: ToolId, body: Annotated[ToolPatchIn, body_of(ToolPatchIn)]
) -> JsonResponse:
    return JsonResponse(tool_json(await services.tools.change(actor, tool_id, body)))


@router.delete("/{tool_id}")
async def delete_tool(services: ServicesDep, actor: ActorDep, tool_id: ToolId) -> JsonResponse:
    await services.tools.delete(actor, tool_id)
    return JsonResponse(None)
