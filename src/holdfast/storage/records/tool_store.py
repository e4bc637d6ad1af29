"""The store of tools. Implements `ports.stores.tool_store.ToolStore`; attaching them is in `agent_store`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, delete, func, or_, select
from sqlalchemy.engine import RowMapping

from holdfast.core.errors import Conflict, NotFound
from holdfast.core.records import Actor, Tool
from holdfast.ports.paging import Page
from holdfast.ports.stores.tool_store import AlterTool, ToolFilter
from holdfast.storage.records.agent_writes import require_agent
from holdfast.storage.records.tool_lookup import ensure_tools, insert_if_missing, write_tool
from holdfast.storage.runs.agent_revision import raise_of_tools
from holdfast.storage.schema.record_tables import agent_tools, tools
from holdfast.storage.sql.database import Database
from holdfast.storage.sql.json_lists import holds
from holdfast.storage.sql.paging import page_rows
from holdfast.storage.sql.rows import from_row, to_row
from holdfast.storage.sql.statements import also


class SqlTools:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, new: Tool, merge: AlterTool) -> Tool:
        return await self._database.write(_put, new, merge)

    async def get(self, actor: Actor, tool_id: str) -> Tool:
        return await self._database.read(get_tool, actor, tool_id)

    async def listing(self, actor: Actor, wanted: ToolFilter, page: Page) -> Sequence[Tool]:
        return await self._database.read(_listing, actor, wanted, page)

    async def count(self, actor: Actor, wanted: ToolFilter) -> int:
        return await self._database.read(_count, actor, wanted)

    async def change(self, actor: Actor, tool_id: str, alter: AlterTool) -> Tool:
        return await self._database.write(_change, actor, tool_id, alter)

    async def delete(self, actor: Actor, tool_id: str) -> None:
        await self._database.write(_delete, actor, tool_id)

    async def ensure(self, wanted: Sequence[Tool]) -> Sequence[Tool]:
        return await self._database.write(ensure_tools, wanted)

    async def of_agent(self, actor: Actor, agent_id: str, page: Page) -> Sequence[Tool]:
        return await self._database.read(_of_agent, actor, agent_id, page)


def get_tool(connection: Connection, actor: Actor, tool_id: str, *, locked: bool = False) -> Tool:
    return from_row(Tool, _row(connection, actor, tool_id, locked=locked))


def _row(connection: Connection, actor: Actor, tool_id: str, *, locked: bool = False) -> RowMapping:
    query = select(tools).where(tools.c.id == tool_id, tools.c.org_id == actor.org_id)
    row = connection.execute(query.with_for_update() if locked else query).mappings().first()
    if row is None:
        raise NotFound(f"Tool with id {tool_id} not found.")
    return row


def _put(connection: Connection, new: Tool, merge: AlterTool) -> Tool:
    """Insert a tool, or merge it into the tool of that name."""
    inserted = connection.execute(insert_if_missing(connection).values(to_row(tools, new)))
    if inserted.rowcount == 1:
        return new
    query = select(tools).where(tools.c.org_id == new.org_id, tools.c.name == new.name).with_for_update()
    before = from_row(Tool, connection.execute(query).mappings().one())
    return write_tool(connection, before, merge(before))


def _change(connection: Connection, actor: Actor, tool_id: str, alter: AlterTool) -> Tool:
    before = from_row(Tool, _row(connection, actor, tool_id, locked=True))
    after = alter(before)
    if after.name != before.name:
        _check_rename(connection, before, after)
    return write_tool(connection, before, after)


def _check_rename(connection: Connection, before: Tool, after: Tool) -> None:
    """Raise `Conflict` unless the tool may be renamed: only while no agent has it, and to a free name.

    Tool rules, approval policies, allowances and open calls refer to a tool by its name. If it were renamed, it would
    run without the approval that they require. The caller has locked the row, so it cannot be attached meanwhile.
    """
    taken = select(tools.c.id).where(tools.c.org_id == before.org_id, tools.c.name == after.name)
    if connection.execute(taken).first() is not None:
        raise Conflict(f"A tool named {after.name} exists already; change that one, or choose another name.")
    holders = select(func.count()).select_from(agent_tools).where(agent_tools.c.tool_id == before.id)
    if count := connection.execute(holders).scalar_one():
        raise Conflict(
            f"Tool {before.name} is attached to {count} agent{'s' if count > 1 else ''}, whose rules and approvals "
            f"know it by that name: it cannot become {after.name}. Detach it first, or make a new tool of that name."
        )


def _delete(connection: Connection, actor: Actor, tool_id: str) -> None:
    _row(connection, actor, tool_id, locked=True)
    raise_of_tools(connection, [tool_id])
    connection.execute(delete(tools).where(tools.c.id == tool_id))


def _of_agent(connection: Connection, actor: Actor, agent_id: str, page: Page) -> list[Tool]:
    require_agent(connection, actor, agent_id)
    query = (
        select(tools)
        .join(agent_tools, agent_tools.c.tool_id == tools.c.id)
        .where(agent_tools.c.agent_id == agent_id, also(tools.c.org_id, actor.org_id))
    )
    return [from_row(Tool, row) for row in page_rows(connection, query, tools, page)]


def _listing(connection: Connection, actor: Actor, wanted: ToolFilter, page: Page) -> list[Tool]:
    query = select(tools).where(*_conditions(connection, actor, wanted))
    return [from_row(Tool, row) for row in page_rows(connection, query, tools, page)]


def _count(connection: Connection, actor: Actor, wanted: ToolFilter) -> int:
    query = select(func.count()).select_from(tools).where(*_conditions(connection, actor, wanted))
    return int(connection.execute(query).scalar_one())


def _conditions(connection: Connection, actor: Actor, wanted: ToolFilter) -> list[ColumnElement[bool]]:
    found = [tools.c.org_id == actor.org_id]
    if wanted.name is not None:
        found.append(tools.c.name == wanted.name)
    for column, values in ((tools.c.name, wanted.names), (tools.c.id, wanted.ids), (tools.c.tool_type, wanted.types)):
        if values is not None:
            found.append(column.in_(values))
    if wanted.tags:
        found.append(or_(*(holds(connection, tools.c.document, "tags", tag) for tag in wanted.tags)))
    if wanted.exclude_types:
        found.append(tools.c.tool_type.not_in(wanted.exclude_types))
    if wanted.search:
        described = tools.c.document["description"].as_string()
        found.append(or_(*(text.icontains(wanted.search, autoescape=True) for text in (tools.c.name, described))))
    return found
