"""The store of the simulator does not lie: whole histories, call by call, get the same answers from a real database.

A history is played on the memory store and every call to it is recorded with its answer. The same calls, at the same
moments, are then made to SQLite and Postgres; each answer must be equal, each refusal of the same kind. So what the
simulator proves of the engine over its store holds over the real ones.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select, update

from holdfast.ports.approvals import Due
from holdfast.ports.runs import Situation
from holdfast.storage.approvals import SqlApprovals
from holdfast.storage.conversations import insert_conversation
from holdfast.storage.database import Database
from holdfast.storage.rows import to_row
from holdfast.storage.run_store import SqlRunStore
from holdfast.storage.tables import agent_blocks, agent_tools, agents, blocks, organizations, tools
from holdfast.testing.clock import FakeClock
from holdfast.testing.simulator.history import History
from holdfast.testing.simulator.many import quietly
from holdfast.testing.simulator.play import played
from holdfast.testing.simulator.wire import Carried
from holdfast.testing.simulator.world import ORG

SEEDS = [3, 37, 42, 55, 91, 154, 479, 1212, 1976, 2436, 2459, 2960, 3247]


class ToldTime(FakeClock):
    """The moment at which the recorded call was carried out."""

    moment: datetime

    def now(self) -> datetime:
        return self.moment


def move_in(connection: Connection, history: History) -> None:
    """The agents, tools and conversations that the history begins with."""
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


async def answer_of(database: Database, clock: ToldTime, done: Carried) -> Any:
    clock.moment = done.now
    if done.name == "set_block":
        await database.write(set_block, *done.args)
        return None
    store = SqlApprovals(database, clock) if done.name in ("expired", "warn") else SqlRunStore(database, clock)
    try:
        return await getattr(store, done.name)(*done.args)
    except Exception as error:
        return type(error)


def comparable(answer: Any) -> Any:
    """Without what each store makes up for itself, and with sequences as tuples."""
    match answer:
        case Situation():
            kept = tuple(replace(allowance, id="") for allowance in answer.allowances)
            blocks_now = tuple(replace(block, updated_at=block.created_at) for block in answer.blocks)
            return replace(answer, allowances=kept, blocks=blocks_now)
        case Due():
            return replace(answer, approval_id="")
        case list() | tuple():
            return tuple(comparable(item) for item in answer)
        case _:
            return answer


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_call_of_a_history_is_answered_alike(database_url: str, seed: int) -> None:
    recorded: list[Carried] = []
    with quietly():
        history, told = played(seed, record=recorded)
    assert told.broken is None
    clock = ToldTime()
    database = Database(database_url)
    try:
        await database.write(move_in, history)
        for number, done in enumerate(recorded):
            said = comparable(await answer_of(database, clock, done))
            expected = comparable(type(done.error) if done.error is not None else done.answer)
            assert said == expected, f"call {number} of seed {seed}: {done.name}{done.args}"
    finally:
        database.close()
