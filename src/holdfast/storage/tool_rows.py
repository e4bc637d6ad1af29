"""Finding tools by name and id, and making those that must be there. Used when agents and tools are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Column, Connection, select, update
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.core.errors import Invalid
from holdfast.core.records import Tool
from holdfast.storage.rows import from_row, to_row
from holdfast.storage.tables import tools


def ensure_tools(connection: Connection, wanted: Sequence[Tool]) -> list[Tool]:
    """Two callers may want the same name at once: the second insert does nothing and finds the first one's."""
    if not wanted:
        return []
    org_id, names = wanted[0].org_id, [tool.name for tool in wanted]
    found = _tools(connection, org_id, tools.c.name, names)
    if missing := [to_row(tools, tool) for tool in wanted if tool.name not in found]:
        connection.execute(insert_if_missing(connection).values(missing))
        found = _tools(connection, org_id, tools.c.name, names)
    return [_up_to_date(connection, found[tool.name], tool) for tool in wanted]


def _up_to_date(connection: Connection, found: Tool, wanted: Tool) -> Tool:
    """A base tool that an earlier version of the server wrote takes the arguments that this one understands."""
    old, new = found.json_schema or {}, wanted.json_schema or {}
    if found.tool_type != wanted.tool_type or old.get("parameters") == new.get("parameters"):
        return found
    after = replace(found, json_schema=new, description=wanted.description, updated_at=wanted.updated_at)
    connection.execute(update(tools).where(tools.c.id == found.id).values(**to_row(tools, after)))
    return after


def insert_if_missing(connection: Connection) -> postgresql.Insert | sqlite.Insert:
    """An insert of tools that passes over a name which is taken."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(tools).on_conflict_do_nothing(index_elements=["org_id", "name"])
    return sqlite.insert(tools).on_conflict_do_nothing(index_elements=["org_id", "name"])


def chosen_tools(connection: Connection, org_id: str, tool_names: Sequence[str], tool_ids: Sequence[str]) -> list[Tool]:
    """The tools asked for, each once: first those by name, then by id. Says which do not exist."""
    by_name = _tools(connection, org_id, tools.c.name, tool_names)
    if missing := [name for name in tool_names if name not in by_name]:
        raise Invalid(f"Tools not found by name: {_set(missing)}")
    in_order = [*(by_name[name] for name in tool_names), *tools_by_id(connection, org_id, tool_ids)]
    return list({tool.id: tool for tool in in_order}.values())


def tools_by_id(connection: Connection, org_id: str, tool_ids: Sequence[str]) -> list[Tool]:
    found = _tools(connection, org_id, tools.c.id, tool_ids)
    if missing := [tool_id for tool_id in tool_ids if tool_id not in found]:
        raise Invalid(f"Tools not found by id:   {_set(missing)}")
    return [found[tool_id] for tool_id in dict.fromkeys(tool_ids)]


def _set(missing: Sequence[str]) -> str:
    """How the clients' texts write it: as Python shows a set, but always in the same order."""
    return "{" + ", ".join(repr(item) for item in sorted(set(missing))) + "}"


def _tools(connection: Connection, org_id: str, key: Column[Any], values: Sequence[str]) -> dict[str, Tool]:
    if not values:
        return {}
    query = select(tools).where(tools.c.org_id == org_id, key.in_(values))
    query = query.with_for_update(read=True, key_share=True)  # so that none is deleted before it is attached
    return {row[key.name]: from_row(Tool, row) for row in connection.execute(query).mappings()}
