"""Creates, changes and deletes agents, each in one transaction. Used by `storage.records.agent_store`.

An agent is created together with its tags, attachments, new blocks and default conversation, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, Connection, Table, delete, exists, func, insert, select, update

from holdfast.core.conversation.messages import Message
from holdfast.core.errors import NotFound
from holdfast.core.records import Actor, Agent, Block, Tool
from holdfast.ports.stores.agent_store import AgentChange, AgentCreation
from holdfast.storage.records.context_writes import replace_context
from holdfast.storage.records.conversation_store import insert_conversation
from holdfast.storage.records.tool_lookup import chosen_tools, ensure_tools, tools_by_id
from holdfast.storage.runs.agent_revision import RAISED
from holdfast.storage.runs.checkpoint import message_row
from holdfast.storage.schema.record_tables import (
    agent_archives,
    agent_blocks,
    agent_tags,
    agent_tools,
    agents,
    archives,
    blocks,
    context,
    conversations,
    messages,
)
from holdfast.storage.sql.rows import changes_of, from_row, to_row


def require_agent(connection: Connection, actor: Actor, agent_id: str) -> None:
    get_agent(connection, actor, agent_id)


def get_agent(connection: Connection, actor: Actor, agent_id: str, *, locked: bool = False) -> Agent:
    query = select(agents).where(agents.c.id == agent_id, agents.c.org_id == actor.org_id)
    row = connection.execute(query.with_for_update() if locked else query).mappings().first()
    if row is None:
        raise NotFound(f"Agent with ID {agent_id} not found")
    return from_row(Agent, row)


# ---- create -------------------------------------------------------------------------------------------------


def create_agent(connection: Connection, new: AgentCreation) -> None:
    ensure_tools(connection, new.base_tools)
    found_tools = chosen_tools(connection, new.org_id, new.tool_names, new.tool_ids)
    found_blocks = [*new.new_blocks, *_blocks_by_id(connection, new.org_id, new.block_ids)]
    agent, first_messages = new.finish(found_tools, found_blocks)
    connection.execute(insert(agents), to_row(agents, agent))
    _write_tags(connection, agent)
    for block in new.new_blocks:
        connection.execute(insert(blocks), to_row(blocks, block))
    attach_all(connection, agent_tools, agent_tools.c.tool_id, agent.id, [tool.id for tool in found_tools])
    attach_all(connection, agent_blocks, agent_blocks.c.block_id, agent.id, [block.id for block in found_blocks])
    system, *others = first_messages
    insert_conversation(connection, new.conversation, system)
    _append_messages(connection, new, others)


def _append_messages(connection: Connection, new: AgentCreation, others: Sequence[Message]) -> None:
    if not others:
        return
    connection.execute(insert(messages), [message_row(new.org_id, message) for message in others])
    context_rows = [
        {"conversation_id": message.conversation_id, "position": message.seq, "message_id": message.id}
        for message in others
    ]
    connection.execute(insert(context), context_rows)
    here = update(conversations).where(conversations.c.id == new.conversation.id)
    connection.execute(here.values(next_seq=others[-1].seq + 1))


def _blocks_by_id(connection: Connection, org_id: str, block_ids: Sequence[str]) -> list[Block]:
    """The blocks that exist, in the given order."""
    if not block_ids:
        return []
    query = select(blocks).where(blocks.c.org_id == org_id, blocks.c.id.in_(block_ids))
    query = query.with_for_update(read=True, key_share=True)  # so that none is deleted before it is attached
    found = {row["id"]: from_row(Block, row) for row in connection.execute(query).mappings()}
    return [found[block_id] for block_id in dict.fromkeys(block_ids) if block_id in found]


# ---- change -------------------------------------------------------------------------------------------------


def change_agent(connection: Connection, actor: Actor, agent_id: str, change: AgentChange) -> None:
    agent = get_agent(connection, actor, agent_id, locked=True)
    attached: list[Tool] = []
    if change.tool_ids is not None:
        attached = _replace_tools(connection, agent, change.tool_ids)
    if change.block_ids is not None:
        found = _blocks_by_id(connection, agent.org_id, change.block_ids)
        _replace(connection, agent_blocks, agent_blocks.c.block_id, agent.id, [block.id for block in found])
    if change.message_ids is not None and change.check_context is not None:
        replace_context(connection, actor, agent_id, change.message_ids, change.check_context)
    write_agent(connection, agent, change.alter(agent, attached))


def _replace_tools(connection: Connection, agent: Agent, tool_ids: Sequence[str]) -> list[Tool]:
    """Replace the agent's tools. Returns those that were not attached before."""
    found = tools_by_id(connection, agent.org_id, tool_ids)
    before = set(connection.execute(select(agent_tools.c.tool_id).where(agent_tools.c.agent_id == agent.id)).scalars())
    _replace(connection, agent_tools, agent_tools.c.tool_id, agent.id, [tool.id for tool in found])
    return [tool for tool in found if tool.id not in before]


def _replace(connection: Connection, table: Table, key: Column[Any], agent_id: str, ids: Sequence[str]) -> None:
    connection.execute(delete(table).where(table.c.agent_id == agent_id))
    attach_all(connection, table, key, agent_id, ids)


def attach_all(connection: Connection, table: Table, key: Column[Any], agent_id: str, ids: Sequence[str]) -> None:
    """Attach records (tools or blocks) after those that are attached already."""
    if not ids:
        return
    last = select(func.max(table.c.position)).where(table.c.agent_id == agent_id)
    start = (connection.execute(last).scalar() or 0) + 1
    rows = [{"agent_id": agent_id, key.name: one, "position": start + index} for index, one in enumerate(ids)]
    connection.execute(insert(table), rows)


def write_agent(connection: Connection, before: Agent, after: Agent) -> None:
    """Update the agent's row, and its tags if they changed. The caller may have changed what is attached to it."""
    connection.execute(update(agents).where(agents.c.id == after.id).values(**changes_of(agents, after), **RAISED))
    if before.tags != after.tags:
        connection.execute(delete(agent_tags).where(agent_tags.c.agent_id == after.id))
        _write_tags(connection, after)


def _write_tags(connection: Connection, agent: Agent) -> None:
    rows = [{"agent_id": agent.id, "tag": tag} for tag in dict.fromkeys(agent.tags)]
    if rows:
        connection.execute(insert(agent_tags), rows)


def delete_agent(connection: Connection, actor: Actor, agent_id: str) -> None:
    """Delete an agent and, by cascade, everything that belongs to it. Blocks stay, because other agents may use them.
    So do archives, except one that was made for this agent and that no other agent uses."""
    get_agent(connection, actor, agent_id, locked=True)
    used = select(agent_archives.c.archive_id).where(agent_archives.c.agent_id == agent_id)
    used_elsewhere = exists().where(agent_archives.c.archive_id == archives.c.id, agent_archives.c.agent_id != agent_id)
    own = archives.c.document["made_for"].as_string() == agent_id
    connection.execute(delete(archives).where(archives.c.id.in_(used), own, ~used_elsewhere))
    connection.execute(delete(agents).where(agents.c.id == agent_id))
