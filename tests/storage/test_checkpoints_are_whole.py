"""Checkpoints are atomic: a process is killed before each SQL statement of a turn, and every time the rows agree.

A message is stored exactly when it is in the context; a run is finished exactly when its agent's last stop reason says
so; a call is settled exactly when its result is stored. Then another process takes over, and each conversation accepts
the next message.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from engine.house import House, opened
from holdfast.core.lifecycle import ACTIVE
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import RunFilter
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.schema.record_tables import agents, context, conversations, events, ledger, messages, runs
from holdfast.testing.script import Say

HERE = Path(__file__).parent
CONVERSATIONS = 120  # more than a turn has statements


def crash_before_every_statement(url: str, conversation_ids: list[str]) -> int:
    script = [sys.executable, str(HERE / "crashing.py"), url, *conversation_ids]
    done = subprocess.run(
        script, env={"PYTHONPATH": str(HERE.parent), "PATH": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def check_that_rows_agree(connection: Connection, conversation_id: str) -> None:
    def found(table: Any, **where: Any) -> list[Any]:
        query = select(table).where(*(table.c[name] == value for name, value in where.items()))
        return list(connection.execute(query))

    stored = found(messages, conversation_id=conversation_id)
    assert {m.id for m in stored} == {c.message_id for c in found(context, conversation_id=conversation_id)}
    (conversation,) = found(conversations, id=conversation_id)
    assert conversation.next_seq == max(m.seq for m in stored) + 1
    (agent,) = found(agents, id=conversation.agent_id)
    left = found(runs, conversation_id=conversation_id)
    resting = [run for run in left if run.status not in ACTIVE]
    assert agent.last_stop_reason == (resting[-1].stop_reason if resting else None)
    for run in left:
        pages = sorted((page.first_seq, page.last_seq) for page in found(events, run_id=run.id))
        assert pages[0][0] == 1
        assert all(after[0] == before[1] + 1 for before, after in pairwise(pages))
        checkpointed = run.last_event in {last for _, last in pages}
        assert checkpointed if run.status in ACTIVE else pages[-1][1] == run.last_event
    for call in found(ledger, conversation_id=conversation_id):
        assert (call.result is not None) == (call.status in ("settled", "denied", "cancelled"))


async def accepts_the_next_message(house: House, conversation_id: str) -> bool:
    """The new process finishes interrupted runs. A call that may have happened waits for a person: cancel it."""
    for run in await house.history.runs(DEFAULT_ACTOR, RunFilter(conversation_id=conversation_id), Page()):
        await house.records(run.id)
        left = await house.history.run(DEFAULT_ACTOR, run.id)
        if left.stop_reason == "requires_approval":
            await house.engine.cancel(left)
    house.model.script(Say("still here"))
    return (await house.finished(conversation_id, "are you there?")).stop_reason == "end_turn"


async def test_a_crash_before_any_statement_of_a_turn_leaves_rows_that_agree(database_url: str) -> None:
    async with opened(database_url) as house:
        ids = [await house.agent("look") for _ in range(CONVERSATIONS)]
    died = crash_before_every_statement(database_url, ids)
    assert died > 30
    async with opened(database_url, sweep=False) as house:
        with house.database.engine.connect() as connection:
            for conversation_id in ids[: died + 1]:
                check_that_rows_agree(connection, conversation_id)
        for _ in range(died):
            house.model.script(Say("went on"))
        await house.engine.open(alone=True)
        for conversation_id in ids[:died:7]:
            assert await accepts_the_next_message(house, conversation_id)
