"""Old events are deleted in small batches, and a client that asks for them gets a gap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, func, select

from engine.house import House, opened
from holdfast.api.turns import respond
from holdfast.engine.chores import retention
from holdfast.engine.chores.retention import Retention
from holdfast.engine.stream import event_records
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import StepFilter
from holdfast.ports.stores.trace_store import HISTORY_SPAN, RequestChange, Trace
from holdfast.storage.chores.retention import SqlOldEvents
from holdfast.storage.chores.traces import SqlTraces
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.schema.record_tables import events, request_changes, run_keys
from holdfast.testing.clock import FakeClock
from holdfast.testing.script import Hang, Say

DAY = 86_400


def keeper(house: House, days: int = 7) -> Retention:
    return Retention(SqlOldEvents(house.database), house.deps.clock, days)


async def pages(house: House, run_id: str) -> int:
    query = select(func.count()).where(events.c.run_id == run_id)
    return await house.database.read(lambda c: c.execute(query).scalar_one())


async def test_events_are_kept_as_long_as_they_should_be_and_no_longer(database_url: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        conversation = await house.agent()
        house.model.script(Say("hello"))
        run = await house.finished(conversation)
        await clock.advance(7 * DAY - 60)
        assert await keeper(house).sweep() == 0
        kept = await pages(house, run.id)
        await clock.advance(120)
        assert await keeper(house).sweep() == kept > 0
        assert await pages(house, run.id) == 0


async def test_a_stream_whose_events_are_all_gone_is_one_gap(database_url: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        conversation = await house.agent()
        house.model.script(Say("hello"))
        run = await house.finished(conversation)
        await clock.advance(8 * DAY)
        await keeper(house).sweep()
        last = (await house.history.run(DEFAULT_ACTOR, run.id)).last_event
        batches = [batch async for batch in house.engine.follow(run.id)]
        assert [(b.records, b.gap_until) for b in batches] == [((), last)]
        assert [batch async for batch in house.engine.follow(run.id, last)] == []
        shown: Any = respond.show(house.engine, run.id).body_iterator
        gap, stop, done = [record async for record in shown]
        assert b'"gap"' in bytes(gap)
        assert bytes(stop) == event_records.stop_record("end_turn").encode()
        assert done == event_records.DONE.encode()


async def test_what_is_left_of_a_stream_follows_its_gap(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PAGES_PER_BATCH", 1)
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        conversation = await house.agent("look")
        house.model.script(Say("hello"))
        run = await house.finished(conversation)
        before = await house.records(run.id)
        await clock.advance(8 * DAY)
        assert await SqlOldEvents(house.database).drop_events(clock.now(), 1) == 1
        batches = [batch async for batch in house.engine.follow(run.id)]
        assert batches[0].gap_until == batches[0].first_seq - 1 >= 1
        assert await house.records(run.id) == before[batches[0].first_seq - 1 :]


async def test_the_events_of_a_run_at_work_are_never_forgotten(database_url: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        conversation = await house.agent()
        house.model.script(Hang())
        run = await house.start(conversation)
        old = SqlOldEvents(house.database)
        assert await old.drop_events(clock.now().replace(year=2030), 100) == 0
        assert await pages(house, run.id) > 0
        await house.engine.cancel(run)


async def test_events_that_a_webhook_still_needs_are_kept(database_url: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        conversation = await house.agent()
        house.model.script(Say("hello"))
        run = await house.finished(conversation, callback_url="https://example.com/hook")
        await clock.advance(2 * DAY)
        assert await keeper(house, days=1).sweep() == 0
        assert await pages(house, run.id) > 0


async def test_the_names_of_requests_go_with_the_events(database_url: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        conversation = await house.agent()
        house.model.script(Say("hello"))
        run = await house.finished(conversation, keys=("otid:1",), body_digest="d")
        assert (await house.start(conversation, keys=("otid:1",), body_digest="d")).id == run.id
        await clock.advance(8 * DAY)
        await keeper(house).sweep()
        count = select(func.count()).select_from(run_keys)
        assert await house.database.read(lambda c: c.execute(count).scalar_one()) == 0
        house.model.script(Say("again"))
        assert (await house.finished(conversation, keys=("otid:1",), body_digest="d")).id != run.id


async def test_traces_are_forgotten_by_a_setting_of_their_own(database_url: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        conversation = await house.agent()
        house.model.script(Say("hello"))
        run = await house.finished(conversation)
        store = SqlTraces(house.database)
        (step,) = await house.history.steps(DEFAULT_ACTOR, StepFilter(run_id=run.id), Page())
        trace = Trace(
            id="provider_trace-1",
            org_id=run.org_id,
            run_id=run.id,
            step_id=step.id,
            agent_id=run.agent_id,
            attempt=1,
            created_at=clock.now(),
            about={},
            body=b"packed",
        )
        trace = replace(trace, history_id=trace.id, history_number=1)
        change = RequestChange(
            history_id=trace.id,
            number=1,
            conversation_id=conversation,
            created_at=clock.now() - HISTORY_SPAN,
            kept=None,
            body=b"packed",
        )
        gone = replace(trace, id="provider_trace-2", run_id="run-gone")
        await store.keep([trace, gone], [change, replace(change, number=2, conversation_id="conv-gone")])
        sweeper = Retention(SqlOldEvents(house.database), clock, 30, traces=store, trace_days=3)
        await clock.advance(3 * DAY - 60)
        await sweeper.sweep()
        assert await store.of_step(DEFAULT_ACTOR, step.id) == trace
        assert await store.changes([trace]) == [change], "the trace still needs it"
        await clock.advance(120)
        await sweeper.sweep()
        assert await store.of_step(DEFAULT_ACTOR, step.id) is None
        assert await store.changes([trace]) == []
        assert await pages(house, run.id) > 0


async def test_an_operator_who_wants_no_traces_keeps_no_part_of_one(database_url: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        conversation = await house.agent()
        store = SqlTraces(house.database)
        change = RequestChange(
            history_id="provider_trace-1",
            number=1,
            conversation_id=conversation,
            created_at=clock.now(),
            kept=None,
            body=b"packed",
        )
        await store.keep([], [change])
        await clock.advance(1)
        await Retention(SqlOldEvents(house.database), clock, 30, traces=store, trace_days=0).sweep()

        def left(connection: Connection) -> int:
            return connection.execute(select(func.count()).select_from(request_changes)).scalar_one()

        assert await house.database.read(left) == 0
