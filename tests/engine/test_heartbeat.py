"""The heartbeat of a process: it keeps the leases of all its runs, and finds cancel requests whose hint was lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from engine.house import House, opened
from holdfast.core.errors import LostLease, StorageDown
from holdfast.core.records import Run
from holdfast.engine.run.heartbeat import BEAT_SECONDS, Heartbeat
from holdfast.engine.run.held_lease import HeldLease
from holdfast.ports.stores.run_store import Lease
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.schema.record_tables import runs
from holdfast.testing.clock import FakeClock
from holdfast.testing.script import Call, Hang, Say
from holdfast.testing.waiting import async_until

LEASE_SECONDS = 10.0


@pytest.fixture
async def still(database_url: str) -> AsyncIterator[House]:
    """A process whose clock the test moves; it does not look for runs of others."""
    async with opened(database_url, clock=FakeClock(), sweep=False, lease_seconds=LEASE_SECONDS) as house:
        yield house


def clock_of(house: House) -> FakeClock:
    assert isinstance(house.deps.clock, FakeClock)
    return house.deps.clock


async def hanging(house: House, times: int = 1) -> list[Run]:
    """Runs that wait for their model."""
    found, called = [], len(house.model.requests)
    for _ in range(times):
        house.model.script(Hang())
        found.append(await house.start(await house.agent()))
    await house.model_called(called + times)
    return found


async def stops(house: House, run: Run) -> list[str]:
    records = await asyncio.wait_for(house.records(run.id), 30)
    return [record["stop_reason"] for record in records if record["message_type"] == "stop_reason"]


async def expires_at(house: House, run: Run) -> Any:
    def read(connection: Any) -> Any:
        return connection.execute(select(runs.c.lease_expires_at).where(runs.c.id == run.id)).scalar()

    return await house.database.read(read)


class Counted:
    """Counts the calls of a store's two heartbeat methods."""

    def __init__(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        self.renewed: list[int] = []
        self.looked = 0
        store = house.deps.store
        renew, look = store.renew, store.cancels_asked

        async def counted_renew(leases: Sequence[Lease]) -> Sequence[str]:
            gone = await renew(leases)
            self.renewed.append(len(leases))
            return gone

        async def counted_look(owner: str) -> Sequence[str]:
            found = await look(owner)
            self.looked += 1
            return found

        monkeypatch.setattr(store, "renew", counted_renew)
        monkeypatch.setattr(store, "cancels_asked", counted_look)


async def beat(house: House, counted: Counted, times: int = 1) -> None:
    """Let the time of so many beats pass, and wait until they are done."""
    for _ in range(times):
        looked = counted.looked
        await clock_of(house).advance(BEAT_SECONDS)
        await async_until(lambda before=looked: counted.looked > before, "a beat")  # type: ignore[misc]


async def test_many_waiting_runs_cost_one_read_a_second_and_one_write_in_three(
    still: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = await hanging(still, 20)
    counted = Counted(still, monkeypatch)
    await beat(still, counted, 6)
    assert (counted.looked, counted.renewed) == (6, [20, 20])
    until = clock_of(still).now() + timedelta(seconds=LEASE_SECONDS)
    assert {await expires_at(still, run) for run in waiting} == {until}


async def test_a_process_without_runs_has_no_heartbeat(still: House, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(still, monkeypatch)
    still.model.script(Say("done"))
    await still.finished(await still.agent())
    for _ in range(3):
        await clock_of(still).advance(BEAT_SECONDS)
    await still.database.settled()
    assert (counted.looked, counted.renewed) == (0, [])
    await hanging(still)  # and the next run has one again
    await beat(still, counted)


async def test_a_run_is_kept_for_longer_than_its_lease(still: House, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = await hanging(still)
    counted = Counted(still, monkeypatch)
    await beat(still, counted, 15)
    now = clock_of(still).now()
    assert await still.deps.store.claim(run.id, "other", now, now) is None


async def test_a_cancel_whose_hint_was_lost_is_noticed_at_the_next_beat(
    still: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while a tool runs, and nothing else is written."""
    conversation = await still.agent("wait")
    wait = still.toolbox.block("wait")
    still.model.script(Call("wait", id="c1"))
    run = await still.start(conversation)
    await wait.begun.wait()
    await still.deps.store.ask_cancel(run.id, "ann", "enough", False)
    await beat(still, Counted(still, monkeypatch))
    assert await stops(still, run) == ["cancelled"]
    rested = await still.history.run(DEFAULT_ACTOR, run.id)
    assert rested.metadata["cancelled"] == {"by": "ann", "reason": "enough"}
    assert wait.ended.is_set()


async def test_a_stream_that_no_hint_reaches_is_cancelled_within_a_second(database_url: str) -> None:
    """In real time, with a lease that is too long to be the reason."""
    async with opened(database_url, lease_seconds=60) as house:
        conversation = await house.agent()
        house.model.script(Say("half"), Hang())
        run = await house.start(conversation, stream_tokens=True)
        await house.model_called(1)
        loop = asyncio.get_running_loop()
        await house.deps.store.ask_cancel(run.id, "ann", None, False)
        began = loop.time()
        assert await stops(house, run) == ["cancelled"]
        assert loop.time() - began < 3  # a second, and what a busy machine adds


@pytest.mark.parametrize("lost", ["claimed", "released", "claimed by this process"])
async def test_a_driver_is_told_that_its_run_is_lost_and_the_others_go_on(
    still: House, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    gone, kept = await hanging(still, 2)
    task, held = still.engine.worker.driving[gone.id]
    later = clock_of(still).now() + timedelta(seconds=LEASE_SECONDS + 1)
    until = later + timedelta(minutes=5)
    if lost == "released":
        await still.deps.store.release(held.stored)
    else:
        owner = "other" if lost == "claimed" else still.deps.owner
        assert await still.deps.store.claim(gone.id, owner, later, until)
    expected = await expires_at(still, gone)
    await beat(still, Counted(still, monkeypatch), 3)
    await asyncio.wait({task})
    assert isinstance(held.error, LostLease)
    assert await expires_at(still, gone) == expected, "a lease that is not ours was changed"
    assert kept.id in still.engine.worker.driving
    assert await expires_at(still, kept) == clock_of(still).now() + timedelta(seconds=LEASE_SECONDS)


async def test_a_renewal_that_fails_is_tried_again_a_second_later(
    still: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = await hanging(still)
    store = still.deps.store
    renew, failures = store.renew, 0

    async def down_at_first(leases: Sequence[Lease]) -> Sequence[str]:
        nonlocal failures
        if failures < 2:
            failures += 1
            raise StorageDown("no answer")
        return await renew(leases)

    monkeypatch.setattr(store, "renew", down_at_first)
    counted = Counted(still, monkeypatch)
    await beat(still, counted, 2)
    for number in (1, 2):  # these beats end early, because the renewal fails
        await clock_of(still).advance(BEAT_SECONDS)
        await async_until(lambda seen=number: failures >= seen)  # type: ignore[misc]
    await beat(still, counted)
    assert counted.renewed == [1]
    assert await expires_at(still, run) == clock_of(still).now() + timedelta(seconds=LEASE_SECONDS)


async def test_a_short_lease_is_renewed_every_third_of_it(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(database_url, clock=FakeClock(), sweep=False, lease_seconds=1.2) as house:
        await hanging(house)
        counted = Counted(house, monkeypatch)
        await clock_of(house).advance(0.4)
        await async_until(lambda: counted.renewed)


async def test_a_lease_that_was_let_go_is_not_renewed(still: House) -> None:
    heartbeat = Heartbeat(still.deps)
    lease = Lease("run-1", "test", 1, clock_of(still).now())
    first, second = (HeldLease(replace(lease, epoch=epoch), clock_of(still), LEASE_SECONDS) for epoch in (1, 2))
    heartbeat.hold(first)
    heartbeat.hold(second)  # the same run, claimed again by this process
    heartbeat.let_go(first)
    assert heartbeat._held == {"run-1": second}
    heartbeat.let_go(second)
    assert heartbeat._held == {}
    heartbeat.close()
