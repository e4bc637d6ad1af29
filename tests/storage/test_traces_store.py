"""Storing traces neither fails nor waits because a conversation is deleted meanwhile."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import delete

from engine.house import House, opened
from holdfast.core.records import Run
from holdfast.ports.stores.trace_store import RequestChange, Trace
from holdfast.storage.chores.traces import SqlTraces
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.schema.record_tables import agents
from holdfast.storage.sql.database import make_engine
from holdfast.testing.script import Say


async def a_run(house: House) -> Run:
    house.model.script(Say("done"))
    return await house.finished(await house.agent())


def trace_of(run: Run) -> Trace:
    return Trace(
        id=f"provider_trace-{run.id}",
        org_id=run.org_id,
        run_id=run.id,
        step_id=f"step-{run.id}",
        agent_id=run.agent_id,
        attempt=1,
        created_at=run.created_at,
        about={},
        body=b"packed",
        history_id=run.id,
        history_number=1,
    )


def change_of(run: Run) -> RequestChange:
    return RequestChange(
        history_id=run.id,
        number=1,
        conversation_id=run.conversation_id,
        created_at=run.created_at,
        kept=None,
        body=b"packed",
    )


async def test_an_agent_that_is_being_deleted_takes_only_its_own_traces_along(postgres_url: str) -> None:
    async with opened(postgres_url) as house:
        deleted, kept = await a_run(house), await a_run(house)
        store, other = SqlTraces(house.database), make_engine(postgres_url)
        with other.begin() as connection:
            connection.execute(delete(agents).where(agents.c.id == deleted.agent_id))
            await store.keep([trace_of(deleted), trace_of(kept)], [change_of(deleted), change_of(kept)])
        other.dispose()
        assert await store.of_run(DEFAULT_ACTOR, kept.id, 10) == [trace_of(kept)]
        assert await store.of_run(DEFAULT_ACTOR, deleted.id, 10) == []
        assert await store.changes([trace_of(kept), trace_of(deleted)]) == [change_of(kept)]


async def test_a_trace_of_a_run_that_is_gone_is_left_out(database_url: str) -> None:
    async with opened(database_url) as house:
        run = await a_run(house)
        gone = replace(trace_of(run), id="provider_trace-gone", run_id="run-gone")
        store = SqlTraces(house.database)
        await store.keep([gone, trace_of(run)], [replace(change_of(run), conversation_id="conv-gone", number=2)])
        assert await store.of_run(DEFAULT_ACTOR, run.id, 10) == [trace_of(run)]
        assert await store.changes([trace_of(run)]) == []
