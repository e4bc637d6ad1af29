"""Create tools from source, replace them by name, change, search and delete them; add the server's base tools.

No tool code runs here. A tool's schema comes from the request, or is read from its source by a `ports.schema_reader`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.core.approvals.expiry import parse_expiry
from holdfast.core.errors import Conflict, Invalid, NotFound
from holdfast.core.records import BUILT_IN_TYPES, Actor, Json, Tool
from holdfast.core.state import OnUnknown
from holdfast.core.tools.tool_limits import own_limits
from holdfast.core.tools.tool_schemas import check_tool_schema
from holdfast.core.tools.unavailable_tools import UNAVAILABLE
from holdfast.ports.clock import Clock
from holdfast.ports.ids import new_id
from holdfast.ports.paging import Page
from holdfast.ports.schema_reader import SchemaReader
from holdfast.ports.stores.tool_store import ToolFilter, ToolStore
from holdfast.records.base_tool_table import BASE_TOOLS
from holdfast.records.base_tools import base_tools_for
from holdfast.records.sent_fields import sent_fields
from holdfast.records.tool_search import MAX_TOOLS, ToolMatch, best

CUSTOM = "custom"
DEFAULT_SOURCE_TYPE = "json"  # clients expect this when they sent none

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SCHEMA_SOURCES = ("source_code", "json_schema", "args_json_schema")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPatch:
    """The fields of a tool that a client may set. None leaves a field as it is."""

    source_code: str | None = None
    source_type: str | None = None
    json_schema: dict[str, Any] | None = None
    args_json_schema: dict[str, Any] | None = None
    description: str | None = None
    tags: Sequence[str] | None = None
    default_requires_approval: bool | None = None
    approval_expiry: dict[str, Any] | None = None
    on_unknown: OnUnknown | None = None
    enable_parallel_execution: bool | None = None
    return_char_limit: int | None = None
    pip_requirements: Sequence[Json] | None = None
    npm_requirements: Sequence[Json] | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTool(ToolPatch):
    source_code: str


class Tools:
    def __init__(self, store: ToolStore, schemas: SchemaReader, clock: Clock) -> None:
        self._store = store
        self._schemas = schemas
        self._clock = clock
        self._compared: set[str] = set()  # organisations whose base tools are known to be up to date
        self._parse_lock = asyncio.Semaphore(1)  # one source at a time: parsing keeps one processor busy

    async def put(self, actor: Actor, new: NewTool) -> Tool:
        """Create a tool. An existing tool from source with the same name is replaced and keeps its id."""
        schema = await self._schema_for(new, None)
        tool_fields = _with_schema(_tool_fields(new), schema)
        tool = _new_tool(actor, schema["name"], tool_fields, self._clock.now())
        return await self._store.put(tool, partial(_replacement, tool, tool_fields))

    async def change(self, actor: Actor, tool_id: str, patch: ToolPatch) -> Tool:
        """The source is parsed before the transaction, because parsing inside it would block all other writes. If the
        tool is changed in between, the source is parsed again."""
        alter = partial(changed_tool, self._schemas, actor, patch, self._clock.now())
        before = await self._store.get(actor, tool_id)
        async with self._parse_lock:
            after = await asyncio.to_thread(alter, before)
        return await self._store.change(actor, tool_id, lambda tool: after if tool == before else alter(tool))

    async def delete(self, actor: Actor, tool_id: str) -> None:
        try:
            await self._store.delete(actor, tool_id)
        except NotFound as error:  # clients expect a 400 here
            raise Invalid(str(error)) from error

    async def add_base_tools(self, actor: Actor) -> Sequence[Tool]:
        names = [tool.name for tool in BASE_TOOLS]
        return await self._store.ensure(base_tools_for(actor, names, self._clock.now()))

    async def restore_base_tools(self, actor: Actor) -> None:
        """Create the base tools that are missing: on a fresh server all of them, later those that were deleted.

        Once in each process the stored schemas are compared too, in case an earlier version wrote them."""
        names = ToolFilter(names=tuple(tool.name for tool in BASE_TOOLS))
        if actor.org_id in self._compared and await self._store.count(actor, names) == len(BASE_TOOLS):
            return
        await self.add_base_tools(actor)
        self._compared.add(actor.org_id)

    async def from_source(self, actor: Actor, new: NewTool, function_name: str | None = None) -> Tool:
        """The tool that a request would create; it is not stored. `function_name` is the function to take if the source
        has several."""
        schema = await self._schema_for(new, function_name)
        return _new_tool(actor, schema["name"], _with_schema(_tool_fields(new), schema), self._clock.now())

    async def _schema_for(self, new: NewTool, function_name: str | None) -> dict[str, Any]:
        async with self._parse_lock:
            return await asyncio.to_thread(schema_for, self._schemas, new, function_name)

    async def search(self, actor: Actor, wanted: ToolFilter, query: str | None, limit: int) -> Sequence[ToolMatch]:
        """Tools that match the query, the best match first; without a query, the newest tools."""
        tools = await self._store.listing(actor, wanted, Page(limit=MAX_TOOLS, order="desc"))
        return await asyncio.to_thread(best, tools, query, limit)


def _replacement(new: Tool, tool_fields: Mapping[str, Any], existing: Tool) -> Tool:
    """The existing tool with the new fields. A tool that was not made from source is never replaced: its agents would
    run the new one instead, although their owners did not choose that. Only a base tool that cannot run here gives way:
    no agent loses anything."""
    if existing.name in UNAVAILABLE and existing.tool_type in BUILT_IN_TYPES:
        return replace(new, id=existing.id, created_at=existing.created_at, created_by=existing.created_by)
    if existing.tool_type != CUSTOM:
        raise Conflict(
            f"{existing.name} is the name of a tool that is not made from source ({existing.tool_type}). Choose "
            f"another name, or delete tool {existing.id} first if yours is to replace it."
        )
    return replace(existing, **tool_fields, updated_at=new.updated_at, updated_by=new.updated_by)


def changed_tool(reader: SchemaReader, actor: Actor, patch: ToolPatch, now: datetime, tool: Tool) -> Tool:
    """The tool after a change. A new source or schema is parsed again, and may rename the tool as long as no agent has
    it (the store checks that)."""
    chosen, name = _tool_fields(patch), tool.name
    if new := {key for key in _SCHEMA_SOURCES if key in chosen and chosen[key] != getattr(tool, key)}:
        if tool.tool_type != CUSTOM:
            raise Invalid(f"{tool.name} was not made from source: its source and schema cannot be changed.")
        stale_args = "source_code" in new and "args_json_schema" not in new
        source = NewTool(
            source_code=chosen.get("source_code", tool.source_code or ""),
            source_type=chosen.get("source_type", tool.source_type),
            json_schema=patch.json_schema,
            args_json_schema=None if stale_args else chosen.get("args_json_schema", tool.args_json_schema),
            description=patch.description,
        )
        schema = schema_for(reader, source)
        chosen, name = _with_schema(chosen, schema), schema["name"]
    elif patch.description is not None and tool.json_schema:  # the model reads the one in the schema
        chosen["json_schema"] = {**tool.json_schema, "description": patch.description}
    return replace(tool, **chosen, name=name, updated_at=now, updated_by=actor.user_id)


def _tool_fields(patch: ToolPatch) -> dict[str, Any]:
    parse_expiry(patch.approval_expiry)
    own_limits(patch.metadata)
    return sent_fields(patch, ToolPatch)


def _with_schema(chosen: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The fields with the schema added, and with the schema's description unless the client sent one."""
    return {"description": schema.get("description"), **chosen, "json_schema": schema}


def _new_tool(actor: Actor, name: str, tool_fields: dict[str, Any], now: datetime) -> Tool:
    return Tool(
        id=new_id("tool"),
        org_id=actor.org_id,
        name=name,
        created_at=now,
        updated_at=now,
        created_by=actor.user_id,
        updated_by=actor.user_id,
        **{"source_type": DEFAULT_SOURCE_TYPE, "on_unknown": None, **tool_fields},
    )


# ---- schema -------------------------------------------------------------------------------------------------


def schema_for(reader: SchemaReader, new: NewTool, function_name: str | None = None) -> dict[str, Any]:
    """The tool's schema: `{"name", "description", "parameters"}`. Raises `Invalid`, which says what to change.

    A `json_schema` in the request wins; then `args_json_schema` with the function in the source; then the source."""
    schema = _schema_for(reader, new, function_name)
    check_tool_schema(schema)
    return schema


def _schema_for(reader: SchemaReader, new: NewTool, function_name: str | None) -> dict[str, Any]:
    if new.json_schema:
        return _as_sent(reader, new.json_schema, new.source_code, new.description)
    if new.source_type in ("typescript", "ts"):
        raise Invalid("A TypeScript tool needs a json_schema: only Python sources are read for one.")
    if new.args_json_schema:
        name, docstring = reader.function_in(new.source_code)
        return reader.from_args(name, new.description or docstring or name, new.args_json_schema)
    return reader.from_source(new.source_code, name=function_name, description=new.description)


def _as_sent(reader: SchemaReader, sent: Mapping[str, Any], source: str, description: str | None) -> dict[str, Any]:
    schema = dict(sent)
    name = schema.get("name") or reader.function_in(source)[0]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Invalid(f"{name!r} cannot be a tool's name; use 1 to 64 letters, digits, underscores and hyphens.")
    schema["name"] = name
    schema.setdefault("description", description)
    schema.setdefault("parameters", {"type": "object", "properties": {}, "required": []})
    return schema
