"""Routes for tools: list, count, create, search, read, modify and delete under /v1/tools.

The routes for the tools of one agent are in `api.routes.agent_attachments`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from fastapi import Depends
from pydantic import ConfigDict, Field, model_validator

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.limits import Names, QueryNames, SearchText, at_most
from holdfast.api.http.parameters import ActorDep, ServicesDep, ToolId, check_order_by, page
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.api.responses.tool_and_block_json import tool_json
from holdfast.ports.package_requirements import MOST_REQUIREMENTS, requirement_text
from holdfast.ports.paging import Page
from holdfast.ports.stores.tool_store import ToolFilter

router = lazy_router("/v1/tools", "tools")

# The types of the tools that come with the server.
LETTA_TYPES = (
    "letta_core",
    "letta_memory_core",
    "letta_multi_agent_core",
    "letta_sleeptime_core",
    "letta_voice_sleeptime_core",
    "letta_builtin",
    "letta_files_core",
)


class Requirement(RequestBody):
    """A package that a tool needs."""

    name: str = Field(min_length=1)
    version: str | None = None


class PipRequirement(Requirement):
    @model_validator(mode="after")
    def _check_installable(self) -> Self:
        requirement_text(self.name, self.version)
        return self


class ChangedTool(RequestBody):
    """Every field of a tool that a client may set. A field that is left out, or null, is not changed."""

    model_config = ConfigDict(populate_by_name=True)

    source_code: str | None = None
    source_type: str | None = None
    json_schema: dict[str, Any] | None = None
    args_json_schema: dict[str, Any] | None = None
    description: str | None = None
    tags: Names | None = None
    default_requires_approval: bool | None = None
    approval_expiry: dict[str, Any] | None = None
    on_unknown: Literal["ask", "retry", "tell"] | None = None
    enable_parallel_execution: bool | None = None
    return_char_limit: int | None = Field(None, ge=1, le=1_000_000)
    pip_requirements: Annotated[list[PipRequirement], at_most(MOST_REQUIREMENTS)] | None = None
    npm_requirements: Annotated[list[Requirement], at_most(MOST_REQUIREMENTS)] | None = None
    metadata: dict[str, Any] | None = Field(None, alias="metadata_")


class NewTool(ChangedTool):
    source_code: str


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
    types = None if tool_types is None else tuple(tool_types)
    if return_only_letta_tools:
        types = tuple(kind for kind in LETTA_TYPES if types is None or kind in types)
    return ToolFilter(
        name=name,
        names=None if names is None else tuple(names),
        ids=None if tool_ids is None else tuple(tool_ids),
        search=search,
        types=types,
        exclude_types=(*(exclude_tool_types or ()), *(LETTA_TYPES if exclude_letta_tools else ())),
    )


Filter = Annotated[ToolFilter, Depends(_filter)]


@router.get("")
async def list_tools(
    services: ServicesDep, actor: ActorDep, wanted: Filter, page: Annotated[Page, page()]
) -> JsonResponse:
    found = await services.tool_store.listing(actor, wanted, check_order_by(page))
    return JsonResponse([tool_json(tool) for tool in found])


@router.post("")
async def create_tool(
    services: ServicesDep, actor: ActorDep, body: Annotated[NewTool, body_of(NewTool)]
) -> JsonResponse:
    return JsonResponse(tool_json(await services.tools.put(actor, body.given())))


@router.put("")
async def upsert_tool(
    services: ServicesDep, actor: ActorDep, body: Annotated[NewTool, body_of(NewTool)]
) -> JsonResponse:
    return JsonResponse(tool_json(await services.tools.put(actor, body.given())))


@router.get("/count")
async def count_tools(services: ServicesDep, actor: ActorDep, wanted: Filter) -> JsonResponse:
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
    services: ServicesDep, actor: ActorDep, tool_id: ToolId, body: Annotated[ChangedTool, body_of(ChangedTool)]
) -> JsonResponse:
    return JsonResponse(tool_json(await services.tools.change(actor, tool_id, body.given())))


@router.delete("/{tool_id}")
async def delete_tool(services: ServicesDep, actor: ActorDep, tool_id: ToolId) -> JsonResponse:
    await services.tools.delete(actor, tool_id)
    return JsonResponse(None)
