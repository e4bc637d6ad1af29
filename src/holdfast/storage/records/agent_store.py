"""The store of agents, and of which tools and blocks are attached to them.

Implements `ports.stores.agent_store.AgentStore`. The SQL is in `agent_writes` and `agent_reads`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, select

from holdfast.core.errors import NotFound
from holdfast.core.records import Actor
from holdfast.ports.paging import Page
from holdfast.ports.stores.agent_store import AgentChange, AgentCreation, AgentFilter, AgentView, AlterAgent, Wanted
from holdfast.storage.records import agent_reads, agent_writes
from holdfast.storage.records.block_store import get_block
from holdfast.storage.records.tool_store import get_tool
from holdfast.storage.schema.record_tables import agent_blocks, agent_tools
from holdfast.storage.sql.database import Database


class SqlAgents:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, new: AgentCreation) -> None:
        await self._database.write(agent_writes.create_agent, new)

    async def get(self, actor: Actor, agent_id: str, wanted: Wanted) -> AgentView:
        return await self._database.read(agent_reads.get_view, actor, agent_id, wanted)

    async def listing(self, actor: Actor, which: AgentFilter, page: Page, wanted: Wanted) -> Sequence[AgentView]:
        return await self._database.read(agent_reads.list_views, actor, which, page, wanted)

    async def count(self, actor: Actor, which: AgentFilter) -> int:
        return await self._database.read(agent_reads.count_agents, actor, which)

    async def tags(self, actor: Actor) -> frozenset[str]:
        return await self._database.read(agent_reads.all_tags, actor)

    async def change(self, actor: Actor, agent_id: str, change: AgentChange) -> None:
        await self._database.write(agent_writes.change_agent, actor, agent_id, change)

    async def delete(self, actor: Actor, agent_id: str) -> None:
        await self._database.write(agent_writes.delete_agent, actor, agent_id)

    async def attach_tool(self, actor: Actor, agent_id: str, tool_id: str, alter: AlterAgent) -> None:
        await self._database.write(_attach_tool, actor, agent_id, tool_id, alter)

    async def detach_tool(self, actor: Actor, agent_id: str, tool_id: str, alter: AlterAgent) -> None:
        await self._database.write(_detach_tool, actor, agent_id, tool_id, alter)

    async def attach_block(self, actor: Actor, agent_id: str, block_id: str, alter: AlterAgent) -> None:
        await self._database.write(_attach_block, actor, agent_id, block_id, alter)

    async def detach_block(self, actor: Actor, agent_id: str, block_id: str, alter: AlterAgent) -> None:
        await self._database.write(_detach_block, actor, agent_id, block_id, alter)


def _attach_tool(connection: Connection, actor: Actor, agent_id: str, tool_id: str, alter: AlterAgent) -> None:
    """Attach a tool. If it is attached already, nothing changes."""
    agent = agent_writes.get_agent(connection, actor, agent_id, locked=True)
    tool = get_tool(connection, actor, tool_id, locked=True)
    link = (agent_tools.c.agent_id == agent_id, agent_tools.c.tool_id == tool_id)
    if connection.execute(select(agent_tools.c.tool_id).where(*link)).first() is not None:
        return
    agent_writes.attach_all(connection, agent_tools, agent_tools.c.tool_id, agent_id, [tool_id])
    agent_writes.write_agent(connection, agent, alter(agent, [tool]))


def _detach_tool(connection: Connection, actor: Actor, agent_id: str, tool_id: str, alter: AlterAgent) -> None:
    """Detach a tool. If it is not attached, nothing changes."""
    agent = agent_writes.get_agent(connection, actor, agent_id, locked=True)
    link = (agent_tools.c.agent_id == agent_id, agent_tools.c.tool_id == tool_id)
    if connection.execute(delete(agent_tools).where(*link)).rowcount:
        agent_writes.write_agent(connection, agent, alter(agent, []))


def _attach_block(connection: Connection, actor: Actor, agent_id: str, block_id: str, alter: AlterAgent) -> None:
    agent = agent_writes.get_agent(connection, actor, agent_id, locked=True)
    get_block(connection, actor, block_id, locked=True)
    link = (agent_blocks.c.agent_id == agent_id, agent_blocks.c.block_id == block_id)
    if connection.execute(select(agent_blocks.c.block_id).where(*link)).first() is not None:
        return
    agent_writes.attach_all(connection, agent_blocks, agent_blocks.c.block_id, agent_id, [block_id])
    agent_writes.write_agent(connection, agent, alter(agent, []))


def _detach_block(connection: Connection, actor: Actor, agent_id: str, block_id: str, alter: AlterAgent) -> None:
    agent = agent_writes.get_agent(connection, actor, agent_id, locked=True)
    link = (agent_blocks.c.agent_id == agent_id, agent_blocks.c.block_id == block_id)
    if not connection.execute(delete(agent_blocks).where(*link)).rowcount:
        raise NotFound(f"No block with id '{block_id}' found for agent '{agent_id}'")
    agent_writes.write_agent(connection, agent, alter(agent, []))
