"""Tools over HTTP: /v1/tools. An agent's own tools are in `api.agent_parts`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from fastapi import Depends, Query
from pydantic import ConfigDict, Field, model_validator

from holdfast.api.bodies import Wire, body_of
from holdfast.api.listing import sorted_by
from holdfast.api.parameters import AsActor, InRooms, ToolId, page
from holdfast.api.responses import Json
from holdfast.api.routing import routes
from holdfast.api.shapes_records import tool_wire
from holdfast.ports.paging import Page
from holdfast.ports.requirements import MOST_REQUIREMENTS, requirement_text
from holdfast.ports.tools import ToolFilter

router = routes("/v1/tools", "tools")

OURS = (
    "letta_core",
    "letta_memory_core",
    "letta_multi_agent_core",
    "letta_sleeptime_core",
    "letta_voice_sleeptime_core",
    "letta_builtin",
    "letta_files_core",
)
TYPES = frozenset({*OURS, "custom", "external_langchain", "external_composio", "external_mcp"})


class Requirement(Wire):
    """A package of a tool."""

    name: str = Field(min_length=1)
    version: str | None = None


class PipRequirement(Requirement):
    @model_validator(mode="after")
    def _one_that_can_be_installed(self) -> Self:
        requirement_text(self.name, self.version)
        return self


class ChangedTool(Wire):
    """Every field of a tool that a client may set; what is left out, or null, stays as it is."""

    model_config = ConfigDict(populate_by_name=True)

    source_code: str | None = None
    source_type: str | None = None
    json_schema: dict[str, Any] | None = None
    args_json_schema: dict[str, Any] | None = None
    description: str | None = None
    tags: list[str] | None = None
    default_requires_approval: bool | None = None
    approval_expiry: dict[str, Any] | None = None
    on_unknown: Literal["ask", "retry", "tell"] | None = None
    enable_parallel_execution: bool | None = None
    return_char_limit: int | None = Field(None, ge=1, le=1_000_000)
    pip_requirements: Annotated[list[PipRequirement], Field(max_length=MOST_REQUIREMENTS)] | None = None
    npm_requirements: list[Requirement] | None = None
    metadata: dict[str, Any] | None = Field(None, alias="metadata_")


class NewTool(ChangedTool):
    source_code: str


async def _filter(
    name: str | None = None,
    names: Annotated[list[str] | None, Query()] = None,
    tool_ids: Annotated[list[str] | None, Query()] = None,
    search: str | None = None,
    tool_types: Annotated[list[str] | None, Query()] = None,
    exclude_tool_types: Annotated[list[str] | None, Query()] = None,
    return_only_letta_tools: bool = False,
    exclude_letta_tools: bool = False,
) -> ToolFilter:
    types = None if tool_types is None else tuple(tool_types)
    if return_only_letta_tools:
        types = tuple(kind for kind in OURS if types is None or kind in types)
    return ToolFilter(
        name=name,
        names=None if names is None else tuple(names),
        ids=None if tool_ids is None else tuple(tool_ids),
        search=search,
        types=types,
        exclude_types=(*(exclude_tool_types or ()), *(OURS if exclude_letta_tools else ())),
    )


Filter = Annotated[ToolFilter, Depends(_filter)]


@router.get("")
async def list_tools(rooms: InRooms, actor: AsActor, wanted: Filter, page: Annotated[Page, page()]) -> Json:
    found = await rooms.tools.listing(actor, wanted, sorted_by(page))
    return Json([tool_wire(tool) for tool in found])


@router.post("")
async def create_tool(rooms: InRooms, actor: AsActor, body: Annotated[NewTool, body_of(NewTool)]) -> Json:
    return Json(tool_wire(await rooms.tools.put(actor, body.given())))


@router.put("")
async def upsert_tool(rooms: InRooms, actor: AsActor, body: Annotated[NewTool, body_of(NewTool)]) -> Json:
    return Json(tool_wire(await rooms.tools.put(actor, body.given())))


@router.get("/count")
async def count_tools(rooms: InRooms, actor: AsActor, wanted: Filter) -> Json:
    return Json(await rooms.tools.count(actor, wanted))


@router.post("/add-base-tools")
async def add_base_tools(rooms: InRooms, actor: AsActor) -> Json:
    return Json([tool_wire(tool) for tool in await rooms.tools.add_base_tools(actor)])


class ToolSearch(Wire):
    query: str | None = None
    search_mode: Literal["vector", "fts", "hybrid"] = "hybrid"
    tool_types: list[str] | None = None
    tags: list[str] | None = None
    limit: int = Field(50, ge=1, le=100)


@router.post("/search")
async def search_tools(rooms: InRooms, actor: AsActor, body: Annotated[ToolSearch, body_of(ToolSearch)]) -> Json:
    """By words in every mode: there are no embeddings yet."""
    types = None if body.tool_types is None else tuple(body.tool_types)
    wanted = ToolFilter(types=types, tags=tuple(body.tags or ()))
    found = await rooms.tools.search(actor, wanted, body.query, body.limit)
    return Json(
        [
            {
                "tool": tool_wire(one.tool),
                "embedded_text": one.text,
                "fts_rank": place if body.query else None,
                "vector_rank": None,
                "combined_score": one.score,
            }
            for place, one in enumerate(found, start=1)
        ]
    )


@router.get("/{tool_id}")
async def retrieve_tool(rooms: InRooms, actor: AsActor, tool_id: ToolId) -> Json:
    return Json(tool_wire(await rooms.tools.get(actor, tool_id)))


@router.patch("/{tool_id}")
async def modify_tool(
    rooms: InRooms, actor: AsActor, tool_id: ToolId, body: Annotated[ChangedTool, body_of(ChangedTool)]
) -> Json:
    return Json(tool_wire(await rooms.tools.change(actor, tool_id, body.given())))


@router.delete("/{tool_id}")
async def delete_tool(rooms: InRooms, actor: AsActor, tool_id: ToolId) -> Json:
    await rooms.tools.delete(actor, tool_id)
    return Json(None)
