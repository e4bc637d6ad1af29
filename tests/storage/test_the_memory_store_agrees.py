"""The simulator's in-memory store behaves like SQLite and Postgres: recorded calls get the same results from all.

A history is played on the in-memory store, and every call to it is recorded with its result. The same calls, at the
same times, are then made to SQLite and Postgres; each result must be equal, and each error of the same class. So what
the simulator proves about the engine holds with the real stores.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select, update

from holdfast.ports.stores.approval_store import Due
from holdfast.ports.stores.run_store import Snapshot, Takeover
from holdfast.storage.records.approval_store import SqlApprovals
from holdfast.storage.records.conversation_store import insert_conversation
from holdfast.storage.runs.agent_revision import raise_of_agents
from holdfast.storage.runs.audit_check import verify
from holdfast.storage.runs.run_store import SqlRunStore
from holdfast.storage.schema.record_tables import agent_blocks, agent_tools, agents, blocks, organizations, tools
from holdfast.storage.sql.database import Database
from holdfast.storage.sql.rows import to_row
from holdfast.testing.clock import FakeClock
from simulator.history import History
from simulator.many import quietly
from simulator.play import played
from simulator.wire import Carried
from simulator.world import ORG

SEEDS = [3, 37, 42, 55, 91, 154, 479, 1212, 1976, 2436, 2459, 2960, 3247]


class RecordedTime(FakeClock):
    """A clock that shows the time of the recorded call."""

    moment: datetime

    def now(self) -> datetime:
        return self.moment


def insert_opening(connection: Connection, history: History) -> None:
    """Insert the agents, tools and conversations that the history begins with."""
    first = history.opening[0][0]
    connection.execute(insert(organizations), {"id": ORG, "name": ORG, "created_at": first.agent.created_at})
    for tool in first.tools:
        connection.execute(insert(tools), to_row(tools, tool))
    for home, conversation, system in history.opening:
        connection.execute(insert(agents), to_row(agents, home.agent))
        for block in home.blocks:
            connection.execute(insert(blocks), to_row(blocks, block))
            link = {"agent_id": home.agent.id, "block_id": block.id, "position": 0}
            connection.execute(insert(agent_blocks), link)
        for position, tool in enumerate(home.tools):
            link = {"agent_id": home.agent.id, "tool_id": tool.id, "position": position}
            connection.execute(insert(agent_tools), link)
        insert_conversation(connection, conversation, system)


def set_block(connection: Connection, agent_id: str, value: str) -> None:
    mine = select(agent_blocks.c.block_id).where(agent_blocks.c.agent_id == agent_id)
    connection.execute(update(blocks).where(blocks.c.id.in_(mine)).values(value=value))
    raise_of_agents(connection, [agent_id])


async def result_of(database: Database, clock: RecordedTime, done: Carried) -> Any:
    clock.moment = done.now
    if done.name == "set_block":
        await database.write(set_block, *done.args)
        return None
    store = SqlApprovals(database, clock) if done.name in ("expired", "warn") else SqlRunStore(database, clock)
    try:
        return await getattr(store, done.name)(*done.args)
    except Exception as error:
        return type(error)


def comparable(result: Any) -> Any:
    """The result without ids and times that each store generates itself, and with sequences as tuples."""
    match result:
        case Snapshot():
            kept = tuple(replace(allowance, id="") for allowance in result.allowances)
            blocks_now = tuple(replace(block, updated_at=block.created_at) for block in result.blocks)
            return replace(result, allowances=kept, blocks=blocks_now)
        case Takeover():
            return replace(result, snapshot=comparable(result.snapshot))
        case Due():
            return replace(result, approval_id="")
        case list() | tuple():
            return tuple(comparable(item) for item in result)
        case _:
            return result


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_call_of_a_history_has_the_same_result(database_url: str, seed: int) -> None:
    recorded: list[Carried] = []
    with quietly():
        history, told = played(seed, record=recorded)
    assert told.broken is None
    clock = RecordedTime()
    database = Database(database_url)
    try:
        await database.write(insert_opening, history)
        for number, done in enumerate(recorded):
            actual = comparable(await result_of(database, clock, done))
            expected = comparable(type(done.error) if done.error is not None else done.answer)
            assert actual == expected, f"call {number} of seed {seed}: {done.name}{done.args}"
        audited = await database.read(verify)
        assert audited.holds, audited
    finally:
        database.close()
