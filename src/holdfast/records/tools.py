"""Tools: made from source, replaced by name, changed, and the base tools that come with the server.

Nothing of a tool is executed here; its schema is read from its source through `ports.schemas`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.core.errors import Conflict, Invalid, NotFound
from holdfast.core.expiry import parse_expiry
from holdfast.core.records import Actor, Tool
from holdfast.core.tool_limits import own_limits
from holdfast.ports.clock import Clock
from holdfast.ports.ids import new_id
from holdfast.ports.paging import Page
from holdfast.ports.schemas import SchemaReader
from holdfast.ports.tools import ToolFilter, ToolStore
from holdfast.records.base_tools import BASE_TOOLS, base_tools_for
from holdfast.records.tool_schema import schema_for
from holdfast.records.tool_search import SEARCHED, Found, best

CUSTOM = "custom"
UNSAID_SOURCE_TYPE = "json"  # what clients are used to read when they did not send one

_OWN = frozenset({"id", "org_id", "name", "tool_type", "created_at", "updated_at", "created_by", "updated_by", "mcp"})
_SETTABLE = frozenset(f.name for f in fields(Tool)) - _OWN
_LISTS = ("tags", "pip_requirements", "npm_requirements")
_SCHEMA_SOURCES = ("source_code", "json_schema", "args_json_schema")


class Tools:
    def __init__(self, store: ToolStore, schemas: SchemaReader, clock: Clock) -> None:
        self._store = store
        self._schemas = schemas
        self._clock = clock

    async def put(self, actor: Actor, given: Mapping[str, Any]) -> Tool:
        """A new tool; one of source that has its name already is changed into it and keeps its id."""
        schema = schema_for(self._schemas, given["source_code"], given)
        told = _told(_settable(given), schema)
        new = _new_tool(actor, schema["name"], told, self._clock.now())
        return await self._store.put(new, partial(_replaced, new, told))

    async def change(self, actor: Actor, tool_id: str, given: Mapping[str, Any]) -> Tool:
        alter = partial(changed, self._schemas, actor, given, self._clock.now())
        return await self._store.change(actor, tool_id, alter)

    async def get(self, actor: Actor, tool_id: str) -> Tool:
        return await self._store.get(actor, tool_id)

    async def listing(self, actor: Actor, wanted: ToolFilter, page: Page) -> Sequence[Tool]:
        return await self._store.listing(actor, wanted, page)

    async def count(self, actor: Actor, wanted: ToolFilter) -> int:
        return await self._store.count(actor, wanted)

    async def delete(self, actor: Actor, tool_id: str) -> None:
        try:
            await self._store.delete(actor, tool_id)
        except NotFound as error:  # clients know this one as a 400
            raise Invalid(str(error)) from error

    async def add_base_tools(self, actor: Actor) -> Sequence[Tool]:
        names = [tool.name for tool in BASE_TOOLS]
        return await self._store.ensure(base_tools_for(actor, names, self._clock.now()))

    def from_source(self, actor: Actor, given: Mapping[str, Any]) -> Tool:
        """The tool that this would make, without keeping it."""
        schema = schema_for(self._schemas, given["source_code"], given)
        return _new_tool(actor, schema["name"], _told(_settable(given), schema), self._clock.now())

    async def search(self, actor: Actor, wanted: ToolFilter, query: str | None, limit: int) -> Sequence[Found]:
        """Tools by the words of the query, the best first; without one, the newest."""
        tools = await self._store.listing(actor, wanted, Page(limit=SEARCHED, order="desc"))
        return best(tools, query, limit)

    async def of_agent(self, actor: Actor, agent_id: str, page: Page) -> Sequence[Tool]:
        return await self._store.of_agent(actor, agent_id, page)


def _replaced(new: Tool, told: Mapping[str, Any], existing: Tool) -> Tool:
    """The tool of this name, made again. One that is not made from source is never replaced: agents that have it would
    run this one in its place, without having been asked."""
    if existing.tool_type != CUSTOM:
        raise Conflict(
            f"{existing.name} is the name of a tool that is not made from source ({existing.tool_type}). Choose "
            f"another name, or delete tool {existing.id} first if yours should stand in for it."
        )
    return replace(existing, **told, updated_at=new.updated_at, updated_by=new.updated_by)


def changed(reader: SchemaReader, actor: Actor, given: Mapping[str, Any], now: datetime, tool: Tool) -> Tool:
    """The tool after a change. A null says nothing. A new source or schema is read again, and may rename the tool
    as long as no agent has it (the store sees to that)."""
    chosen = _settable(given)
    new = {key: chosen[key] for key in _SCHEMA_SOURCES if key in chosen and chosen[key] != getattr(tool, key)}
    name = tool.name
    if new and tool.tool_type != CUSTOM:
        raise Invalid(f"{tool.name} was not made from source: its source and schema cannot be changed.")
    if new:
        said = {"args_json_schema": tool.args_json_schema, "source_type": tool.source_type, **chosen}
        if "source_code" in new and "args_json_schema" not in new:
            said.pop("args_json_schema")
        schema = schema_for(reader, chosen.get("source_code", tool.source_code or ""), said)
        chosen, name = _told(chosen, schema), schema["name"]
    elif "description" in chosen and tool.json_schema:  # the model reads the one in the schema
        chosen["json_schema"] = {**tool.json_schema, "description": chosen["description"]}
    return replace(tool, **chosen, name=name, updated_at=now, updated_by=actor.user_id)


def _settable(given: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {key: value for key, value in given.items() if key in _SETTABLE and value is not None}
    parse_expiry(chosen.get("approval_expiry"))
    own_limits(chosen.get("metadata"))
    return chosen | {key: tuple(chosen[key]) for key in _LISTS if key in chosen}


def _told(chosen: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """With the schema, and a description that is the schema's unless one was sent."""
    return {"description": schema.get("description"), **chosen, "json_schema": schema}


def _new_tool(actor: Actor, name: str, told: dict[str, Any], now: datetime) -> Tool:
    return Tool(
        id=new_id("tool"),
        org_id=actor.org_id,
        name=name,
        created_at=now,
        updated_at=now,
        created_by=actor.user_id,
        updated_by=actor.user_id,
        **{"source_type": UNSAID_SOURCE_TYPE, **told},
    )
