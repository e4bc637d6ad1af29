"""The store of MCP servers and of their tools. Implements `ports.stores.mcp_server_store.McpServerStore`.

A server's tools are rows of `tools`; their `document` names the server. Nothing here connects to a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from holdfast.core.errors import Conflict, NotFound
from holdfast.core.records import Actor, McpServer, Tool
from holdfast.ports.stores.mcp_server_store import AlterServer, Reconcile, Reconciliation
from holdfast.storage.records.tool_lookup import write_tool
from holdfast.storage.runs.agent_revision import raise_of_tools
from holdfast.storage.schema.record_tables import mcp_servers, tools
from holdfast.storage.sql.database import Database
from holdfast.storage.sql.rows import changes_of, from_row, to_row

EXTERNAL = "external_mcp"


class SqlMcpServers:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, new: McpServer) -> None:
        await self._database.write(_add, new)

    async def get(self, org_id: str, server_id: str) -> McpServer:
        return await self._database.read(_one, org_id, mcp_servers.c.id == server_id, server_id)

    async def named(self, org_id: str, server_name: str) -> McpServer:
        return await self._database.read(_one, org_id, mcp_servers.c.server_name == server_name, server_name)

    async def listing(self, actor: Actor) -> Sequence[McpServer]:
        return await self._database.read(_listing, actor)

    async def change(self, actor: Actor, server_id: str, alter: AlterServer) -> McpServer:
        return await self._database.write(_change, actor, server_id, alter)

    async def delete(self, actor: Actor, server_id: str) -> None:
        await self._database.write(_delete, actor, server_id)

    async def tools(self, actor: Actor, server_id: str) -> Sequence[Tool]:
        return await self._database.read(_tools, actor, server_id)

    async def reconcile(self, actor: Actor, server_id: str, reconcile: Reconcile) -> Reconciliation:
        return await self._database.write(_reconcile, actor, server_id, reconcile)


def _one(
    connection: Connection, org_id: str, which: ColumnElement[bool], name: str, *, locked: bool = False
) -> McpServer:
    query = select(mcp_servers).where(mcp_servers.c.org_id == org_id, which)
    row = connection.execute(query.with_for_update() if locked else query).mappings().first()
    if row is None:
        raise NotFound(f"MCP server {name} not found.")
    return from_row(McpServer, row)


def _locked(connection: Connection, actor: Actor, server_id: str) -> McpServer:
    return _one(connection, actor.org_id, mcp_servers.c.id == server_id, server_id, locked=True)


def _listing(connection: Connection, actor: Actor) -> list[McpServer]:
    query = select(mcp_servers).where(mcp_servers.c.org_id == actor.org_id)
    query = query.order_by(mcp_servers.c.created_at, mcp_servers.c.id)
    return [from_row(McpServer, row) for row in connection.execute(query).mappings()]


def _add(connection: Connection, new: McpServer) -> None:
    _check_name(connection, new)
    connection.execute(insert(mcp_servers), to_row(mcp_servers, new))


def _check_name(connection: Connection, server: McpServer) -> None:
    same = (mcp_servers.c.org_id == server.org_id, mcp_servers.c.server_name == server.server_name)
    if connection.execute(select(mcp_servers.c.id).where(*same, mcp_servers.c.id != server.id)).first() is not None:
        raise Conflict(f"An MCP server named {server.server_name} exists already; change it, or choose another name.")


def _change(connection: Connection, actor: Actor, server_id: str, alter: AlterServer) -> McpServer:
    before = _locked(connection, actor, server_id)
    after = alter(before)
    _check_name(connection, after)
    connection.execute(
        update(mcp_servers).where(mcp_servers.c.id == server_id).values(**changes_of(mcp_servers, after))
    )
    if after.revision != before.revision:
        for tool in _tools(connection, actor, server_id):
            write_tool(connection, tool, replace(tool, mcp={**(tool.mcp or {}), "revision": after.revision}))
    return after


def _delete(connection: Connection, actor: Actor, server_id: str) -> None:
    _locked(connection, actor, server_id)
    raise_of_tools(connection, [tool.id for tool in _tools(connection, actor, server_id)])
    connection.execute(delete(tools).where(*_of_server(actor, server_id)))
    connection.execute(delete(mcp_servers).where(mcp_servers.c.id == server_id))


def _tools(connection: Connection, actor: Actor, server_id: str) -> list[Tool]:
    query = select(tools).where(*_of_server(actor, server_id)).order_by(tools.c.name)
    return [from_row(Tool, row) for row in connection.execute(query).mappings()]


def _of_server(actor: Actor, server_id: str) -> tuple[ColumnElement[bool], ...]:
    same_server = tools.c.document["mcp"]["server_id"].as_string() == server_id
    return (tools.c.org_id == actor.org_id, tools.c.tool_type == EXTERNAL, same_server)


def _reconcile(connection: Connection, actor: Actor, server_id: str, reconcile: Reconcile) -> Reconciliation:
    """Add, change and delete the server's tools as `reconcile` decides."""
    _locked(connection, actor, server_id)  # so that two refreshes do not add the same tool twice
    existing = _tools(connection, actor, server_id)
    names = connection.execute(select(tools.c.name).where(tools.c.org_id == actor.org_id)).scalars()
    wanted = reconcile(existing, frozenset(names) - {tool.name for tool in existing})
    gone = [tool.id for tool in wanted.gone]
    raise_of_tools(connection, gone)
    connection.execute(delete(tools).where(tools.c.id.in_(gone)))
    before = {tool.id: tool for tool in existing}
    for tool in wanted.changed:
        write_tool(connection, before[tool.id], tool)
    if wanted.added:
        connection.execute(insert(tools), [to_row(tools, tool) for tool in wanted.added])
    return wanted
