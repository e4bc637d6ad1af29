"""Agents in rows. Implements `ports.agents.AgentStore`; writing is in `agent_rows`, reading in `agent_views`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, select

from holdfast.core.errors import NotFound
from holdfast.core.records import Actor
from holdfast.ports.agents import AgentChange, AgentFilter, AgentView, AlterAgent, NewAgent, Wanted
from holdfast.ports.paging import Page
from holdfast.storage import agent_rows, agent_views
from holdfast.storage.blocks import get_block
from holdfast.storage.database import Database
from holdfast.storage.tables import agent_blocks, agent_tools
from holdfast.storage.tools import get_tool


class SqlAgents:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, new: NewAgent) -> None:
        await self._database.write(agent_rows.create_agent, new)

    async def get(self, actor: Actor, agent_id: str, wanted: Wanted) -> AgentView:
        return await self._database.read(agent_views.get_view, actor, agent_id, wanted)

    async def listing(self, actor: Actor, which: AgentFilter, page: Page, wanted: Wanted) -> Sequence[AgentView]:
        return await self._database.read(agent_views.list_views, actor, which, page, wanted)

    async def count(self, actor: Actor, which: AgentFilter) -> int:
        return await self._database.read(agent_views.count_agents, actor, which)

    async def change(self, actor: Actor, agent_id: str, change: AgentChange) -> None:
        await self._database.write(agent_rows.change_agent, actor, agent_id, change)

    async def delete(self, actor: Actor, agent_id: str) -> None:
        await self._database.write(agent_rows.delete_agent, actor, agent_id)

    async def attach_tool(self, actor: Actor, agent_id: str, tool_id: str, alter: AlterAgent) -> None:
        await self._database.write(_attach_tool, actor, agent_id, tool_id, alter)

    async def detach_tool(self, actor: Actor, agent_id: str, tool_id: str, alter: AlterAgent) -> None:
        await self._database.write(_detach_tool, actor, agent_id, tool_id, alter)

    async def attach_block(self, actor: Actor, agent_id: str, block_id: str, alter: AlterAgent) -> None:
        await self._database.write(_attach_block, actor, agent_id, block_id, alter)

    async def detach_block(self, actor: Actor, agent_id: str, block_id: str, alter: AlterAgent) -> None:
        await self._database.write(_detach_block, actor, agent_id, block_id, alter)


def _attach_tool(connection: Connection, actor: Actor, agent_id: str, tool_id: str, alter: AlterAgent) -> None:
    """Attaching what is attached changes nothing."""
    agent = agent_rows.get_agent(connection, actor, agent_id, locked=True)
    tool = get_tool(connection, actor, tool_id, locked=True)
    link = (agent_tools.c.agent_id == agent_id, agent_tools.c.tool_id == tool_id)
    if connection.execute(select(agent_tools.c.tool_id).where(*link)).first() is not None:
        return
    agent_rows.attach_all(connection, agent_tools, agent_tools.c.tool_id, agent_id, [tool_id])
    agent_rows.write_agent(connection, agent, alter(agent, [tool]))


def _detach_tool(connection: Connection, actor: Actor, agent_id: str, tool_id: str, alter: AlterAgent) -> None:
    """Detaching what is not attached changes nothing."""
    agent = agent_rows.get_agent(connection, actor, agent_id, locked=True)
    link = (agent_tools.c.agent_id == agent_id, agent_tools.c.tool_id == tool_id)
    if connection.execute(delete(agent_tools).where(*link)).rowcount:
        agent_rows.write_agent(connection, agent, alter(agent, []))


def _attach_block(connection: Connection, actor: Actor, agent_id: str, block_id: str, alter: AlterAgent) -> None:
    agent = agent_rows.get_agent(connection, actor, agent_id, locked=True)
    get_block(connection, actor, block_id, locked=True)
    link = (agent_blocks.c.agent_id == agent_id, agent_blocks.c.block_id == block_id)
    if connection.execute(select(agent_blocks.c.block_id).where(*link)).first() is not None:
        return
    agent_rows.attach_all(connection, agent_blocks, agent_blocks.c.block_id, agent_id, [block_id])
    agent_rows.write_agent(connection, agent, alter(agent, []))


def _detach_block(connection: Connection, actor: Actor, agent_id: str, block_id: str, alter: AlterAgent) -> None:
    agent = agent_rows.get_agent(connection, actor, agent_id, locked=True)
    link = (agent_blocks.c.agent_id == agent_id, agent_blocks.c.block_id == block_id)
    if not connection.execute(delete(agent_blocks).where(*link)).rowcount:
        raise NotFound(f"No block with id '{block_id}' found for agent '{agent_id}'")
    agent_rows.write_agent(connection, agent, alter(agent, []))
