"""Finds tools by name or id, and creates base tools that are missing. Used by the stores of agents and tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Column, Connection, select, update
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.core.errors import Invalid
from holdfast.core.records import BUILT_IN_TYPES, Tool
from holdfast.storage.runs.agent_revision import raise_of_tools
from holdfast.storage.schema.record_tables import tools
from holdfast.storage.sql.rows import changes_of, from_row, to_row


def ensure_tools(connection: Connection, wanted: Sequence[Tool]) -> list[Tool]:
    """The stored tools of these names; missing ones are created.

    Two callers may create the same name at once: the second insert does nothing, and finds the first one's row."""
    if not wanted:
        return []
    org_id, names = wanted[0].org_id, [tool.name for tool in wanted]
    found = _tools(connection, org_id, tools.c.name, names)
    if missing := [to_row(tools, tool) for tool in wanted if tool.name not in found]:
        connection.execute(insert_if_missing(connection).values(missing))
        found = _tools(connection, org_id, tools.c.name, names)
    return [_up_to_date(connection, found[tool.name], tool) for tool in wanted]


def _up_to_date(connection: Connection, found: Tool, wanted: Tool) -> Tool:
    """Update a base tool that an earlier version of the server stored, if this version has another type or other
    parameters for it. A user's tool of that name stays as it is."""
    old, new = found.json_schema or {}, wanted.json_schema or {}
    is_same = found.tool_type == wanted.tool_type and old.get("parameters") == new.get("parameters")
    if found.tool_type not in BUILT_IN_TYPES or is_same:
        return found
    after = replace(
        found,
        json_schema=new,
        description=wanted.description,
        tool_type=wanted.tool_type,
        tags=wanted.tags,
        updated_at=wanted.updated_at,
    )
    return write_tool(connection, found, after)


def write_tool(connection: Connection, before: Tool, after: Tool) -> Tool:
    """Update a tool. A client that stores the same tool again at each of its starts does not touch the agents."""
    connection.execute(update(tools).where(tools.c.id == after.id).values(**changes_of(tools, after)))
    if replace(after, updated_at=before.updated_at, updated_by=before.updated_by) != before:
        raise_of_tools(connection, [after.id])
    return after


def insert_if_missing(connection: Connection) -> postgresql.Insert | sqlite.Insert:
    """An INSERT of tools that does nothing for a name that exists already."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(tools).on_conflict_do_nothing(index_elements=["org_id", "name"])
    return sqlite.insert(tools).on_conflict_do_nothing(index_elements=["org_id", "name"])


def chosen_tools(connection: Connection, org_id: str, tool_names: Sequence[str], tool_ids: Sequence[str]) -> list[Tool]:
    """The requested tools without duplicates: first those by name, then by id. Raises `Invalid` for missing ones."""
    by_name = _tools(connection, org_id, tools.c.name, tool_names)
    if missing := [name for name in tool_names if name not in by_name]:
        raise Invalid(f"Tools not found by name: {_as_python_set(missing)}")
    in_order = [*(by_name[name] for name in tool_names), *tools_by_id(connection, org_id, tool_ids)]
    return list({tool.id: tool for tool in in_order}.values())


def tools_by_id(connection: Connection, org_id: str, tool_ids: Sequence[str]) -> list[Tool]:
    found = _tools(connection, org_id, tools.c.id, tool_ids)
    if missing := [tool_id for tool_id in tool_ids if tool_id not in found]:
        raise Invalid(f"Tools not found by id:   {_as_python_set(missing)}")
    return [found[tool_id] for tool_id in dict.fromkeys(tool_ids)]


def _as_python_set(missing: Sequence[str]) -> str:
    """The format that clients know from error texts: a set as Python prints it, but always in the same order."""
    return "{" + ", ".join(repr(item) for item in sorted(set(missing))) + "}"


def _tools(connection: Connection, org_id: str, key: Column[Any], values: Sequence[str]) -> dict[str, Tool]:
    if not values:
        return {}
    query = select(tools).where(tools.c.org_id == org_id, key.in_(values))
    query = query.with_for_update(read=True, key_share=True)  # so that none is deleted before it is attached
    return {row[key.name]: from_row(Tool, row) for row in connection.execute(query).mappings()}
