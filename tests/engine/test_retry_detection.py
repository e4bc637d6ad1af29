"""Retry detection finds the run of an earlier request only if its response cannot have been delivered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest_asyncio

from engine.house import House, opened
from holdfast.core.records import Run
from holdfast.ports.stores.retry_detection import RetriedRequest
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.runs.retry_detection import RETRY_WINDOW, SqlRetryDetection
from holdfast.testing.clock import FakeClock
from holdfast.testing.script import Hang, Say

LATE_SECONDS = RETRY_WINDOW.total_seconds()


@dataclass
class Desk:
    """Requests are waited for at the process "here"; the process "dead" has died, and "left" left in order."""

    house: House
    clock: FakeClock
    repeats: SqlRetryDetection
    conversation: str

    async def at_work(self, **options: Any) -> Run:
        self.house.model.script(Hang())
        return await self.house.start(self.conversation, **{"body_digest": "same", "waiter": "here"} | options)

    async def finished(self, **options: Any) -> Run:
        self.house.model.script(Say("done"))
        return await self.house.finished(self.conversation, **{"body_digest": "same", "waiter": "here"} | options)

    async def found(self, digest: str = "same", *, rejectable: bool = True) -> str | None:
        run = await self.repeats.find(DEFAULT_ACTOR, RetriedRequest(self.conversation, digest, rejectable))
        return None if run is None else run.id


@pytest_asyncio.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        repeats = SqlRetryDetection(house.database, clock, "here", lambda owner: owner == "dead")
        yield Desk(house, clock, repeats, await house.agent())


async def test_who_could_only_be_refused_because_the_same_is_at_work_is_the_same(desk: Desk) -> None:
    run = await desk.at_work()
    assert await desk.found() == run.id
    assert await desk.found("other") is None


async def test_who_would_wait_for_a_turn_is_the_same_only_if_the_first_hung_up(desk: Desk) -> None:
    run = await desk.at_work()
    assert await desk.found(rejectable=False) is None
    await desk.repeats.record_undelivered(run)
    await desk.clock.advance(1000)
    assert await desk.found(rejectable=False) == run.id


async def test_who_would_wait_for_a_turn_is_the_same_if_the_first_waited_at_a_process_that_died(desk: Desk) -> None:
    run = await desk.at_work(waiter="dead")
    assert await desk.found(rejectable=False) == run.id


async def test_what_was_answered_and_is_said_again_is_new(desk: Desk) -> None:
    await desk.finished()
    assert await desk.found() is None


async def test_what_a_process_that_left_in_order_answered_and_is_said_again_is_new(desk: Desk) -> None:
    await desk.finished(waiter="left")
    assert await desk.found() is None


async def test_what_was_answered_before_it_ended_and_is_said_again_is_new(desk: Desk) -> None:
    await desk.finished(waiter=None)
    assert await desk.found() is None


async def test_a_response_that_was_not_delivered_can_be_requested_again_for_a_while(desk: Desk) -> None:
    run = await desk.finished()
    await desk.repeats.record_undelivered(run)
    assert await desk.found() == run.id
    await desk.clock.advance(LATE_SECONDS - 1)
    await desk.repeats.record_undelivered(run)
    await desk.clock.advance(LATE_SECONDS)
    assert await desk.found() == run.id
    await desk.clock.advance(1)
    assert await desk.found() is None


async def test_an_answer_of_a_process_that_died_can_be_asked_for_again_for_a_while(desk: Desk) -> None:
    run = await desk.finished(waiter="dead")
    await desk.clock.advance(LATE_SECONDS)
    assert await desk.found() == run.id
    await desk.clock.advance(1)
    assert await desk.found() is None


async def test_only_the_newest_of_the_same_words_counts(desk: Desk) -> None:
    await desk.repeats.record_undelivered(await desk.finished())
    await desk.clock.advance(1)
    await desk.finished()
    assert await desk.found() is None


async def test_what_others_said_is_not_what_i_said(desk: Desk) -> None:
    await desk.repeats.record_undelivered(await desk.finished())
    sought = RetriedRequest(desk.conversation, "same", True)
    assert await desk.repeats.find(replace(DEFAULT_ACTOR, user_id="user-2"), sought) is None
