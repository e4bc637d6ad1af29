"""Raises `agents.revision`: the number that tells that something which a decision reads about an agent has changed.

A process that accepts a message uses what it remembers of the conversation, and compares two numbers in the accepting
transaction instead of reading again: the conversation's version, for its messages and tool calls, and the agent's
revision, for everything else of a `Snapshot`. So every writer of an agent, its tools, its memory blocks, its
conversations' settings or its allowances raises the revision in the same transaction;
tests/storage/test_agent_revision.py finds one that does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, Select, bindparam, select, update

from holdfast.ports.stores.run_store import Change, StaleSnapshot
from holdfast.storage.schema.record_tables import agent_blocks, agent_tools, agents
from holdfast.storage.sql.prepared import Prepared

RAISED = {"revision": agents.c.revision + 1}

_REVISION = Prepared(select(agents.c.revision).where(agents.c.id == bindparam("agent_id")))


def revision_of(connection: Connection, agent_id: str) -> CursorResult[Any]:
    return connection.execute(_REVISION, {"agent_id": agent_id})


def refuse_if_changed(revision: CursorResult[Any], change: Change) -> None:
    """Raise `StaleSnapshot` unless the agent still has the revision that the change was decided on."""
    if revision.scalar() != change.revision:
        raise StaleSnapshot(f"The agent has changed since revision {change.revision}.")


def raise_of_agents(connection: Connection, agent_ids: Sequence[str]) -> None:
    connection.execute(update(agents).where(agents.c.id.in_(agent_ids)).values(RAISED))


def raise_of_tools(connection: Connection, tool_ids: Sequence[str]) -> None:
    """Raise the revision of every agent that has one of these tools. Call this before a tool is deleted."""
    _raise(connection, select(agent_tools.c.agent_id).where(agent_tools.c.tool_id.in_(tool_ids)))


def raise_of_block(connection: Connection, block_id: str) -> None:
    """Raise the revision of every agent that has this block. Call this before the block is deleted or detached."""
    _raise(connection, select(agent_blocks.c.agent_id).where(agent_blocks.c.block_id == block_id))


def _raise(connection: Connection, agent_ids: Select[Any]) -> None:
    # Locked in order, so that two writers of two shared blocks do not wait for each other.
    locked = select(agents.c.id).where(agents.c.id.in_(agent_ids)).order_by(agents.c.id)
    locked = locked.with_for_update(key_share=True)
    if ids := list(connection.execute(locked).scalars()):
        raise_of_agents(connection, ids)
