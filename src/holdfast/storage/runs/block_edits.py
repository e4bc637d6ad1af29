"""Writes the memory block edits of tools by compare-and-set, in the transaction that writes the tool's result.

A block is compared with the version that the tool saw. If a person, or another agent that shares the block, has changed
it meanwhile, the whole transaction fails with `StaleMemory`, and the engine tells the model. `checkpoint` calls this
for runs, and `storage.records.block_store` for tools that are run over the API.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select, update

from holdfast.core.records import Block
from holdfast.ports.stores.run_store import StaleMemory
from holdfast.ports.toolbox import MemoryEdit
from holdfast.storage.runs.agent_revision import raise_of_agents, raise_of_block
from holdfast.storage.schema.record_tables import agent_blocks, agents, blocks
from holdfast.storage.sql.rows import from_row, to_row

_COMPARED = ("label", "value", "limit", "read_only")


def write_edit(connection: Connection, agent_id: str, edit: MemoryEdit, now: datetime) -> None:
    before, after = edit.before, edit.after
    if before is None:
        if after is not None:
            _attach_new(connection, agent_id, after)
        return
    if after is None:
        _compare(connection, agent_id, before)
        _detach(connection, agent_id, before)
        return
    if after.label != before.label:
        _check_label_is_free(connection, agent_id, after.label)
    _compare(connection, agent_id, before)
    changed = {"label": after.label, "value": after.value, "description": after.description, "updated_at": now}
    connection.execute(update(blocks).where(blocks.c.id == before.id).values(**changed))
    raise_of_block(connection, before.id)


def _compare(connection: Connection, agent_id: str, seen: Block) -> None:
    """Raise `StaleMemory` unless the block is as `seen`. Locks the row, so that it cannot change before our write."""
    query = (
        select(blocks)
        .join(agent_blocks, agent_blocks.c.block_id == blocks.c.id)
        .where(blocks.c.id == seen.id, agent_blocks.c.agent_id == agent_id)
        .with_for_update(of=blocks)
    )
    row = connection.execute(query).mappings().first()
    found = None if row is None else from_row(Block, row)
    if found is None or any(getattr(found, name) != getattr(seen, name) for name in _COMPARED):
        raise StaleMemory(seen.label)


def _check_label_is_free(connection: Connection, agent_id: str, label: str) -> None:
    # The agent's row is the lock: two edits at once must not both find the label free.
    connection.execute(select(agents.c.id).where(agents.c.id == agent_id).with_for_update())
    taken = (
        select(blocks.c.id)
        .join(agent_blocks, agent_blocks.c.block_id == blocks.c.id)
        .where(agent_blocks.c.agent_id == agent_id, blocks.c.label == label)
    )
    if connection.execute(taken).first() is not None:
        raise StaleMemory(label)


def _attach_new(connection: Connection, agent_id: str, block: Block) -> None:
    _check_label_is_free(connection, agent_id, block.label)
    last = select(func.max(agent_blocks.c.position)).where(agent_blocks.c.agent_id == agent_id)
    position = (connection.execute(last).scalar() or 0) + 1
    connection.execute(insert(blocks), to_row(blocks, block))
    connection.execute(insert(agent_blocks), {"agent_id": agent_id, "block_id": block.id, "position": position})
    raise_of_agents(connection, [agent_id])


def _detach(connection: Connection, agent_id: str, block: Block) -> None:
    """Detach the block. The block itself stays: another agent may use it, and a person can attach it again."""
    raise_of_agents(connection, [agent_id])
    link = (agent_blocks.c.agent_id == agent_id, agent_blocks.c.block_id == block.id)
    connection.execute(delete(agent_blocks).where(*link))
