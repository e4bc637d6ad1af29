"""Which run a request is that was sent before: only one whose answer cannot have arrived."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest_asyncio

from engine.house import House, opened
from holdfast.core.records import Run
from holdfast.ports.repeats import Repeat
from holdfast.storage.people import DEFAULT_ACTOR
from holdfast.storage.repeats import LATE_SECONDS, SqlRepeats
from holdfast.testing.clock import FakeClock
from holdfast.testing.script import Hang, Say


@dataclass
class Desk:
    house: House
    clock: FakeClock
    repeats: SqlRepeats
    conversation: str

    async def finished(self, digest: str = "same") -> Run:
        self.house.model.script(Say("done"))
        return await self.house.finished(self.conversation, body_digest=digest)

    async def found(self, digest: str = "same", *, within: float = 70.0, waits: bool = True) -> str | None:
        run = await self.repeats.find(DEFAULT_ACTOR, Repeat(self.conversation, digest, within, waits))
        return None if run is None else run.id


@pytest_asyncio.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        yield Desk(house, clock, SqlRepeats(house.database, clock), await house.agent())


async def test_what_is_at_work_has_not_been_heard(desk: Desk) -> None:
    desk.house.model.script(Hang())
    run = await desk.house.start(desk.conversation, body_digest="same")
    assert await desk.found() == run.id
    assert await desk.found(waits=False) == run.id
    assert await desk.found("other") is None
    await desk.clock.advance(80)
    assert await desk.found() is None, "nobody who tries again sent it that long ago"
    assert await desk.found(within=140) == run.id


async def test_what_was_answered_and_is_said_again_is_new(desk: Desk) -> None:
    await desk.finished()
    assert await desk.found() is None


async def test_an_answer_that_reached_nobody_can_be_asked_for_again_for_a_while(desk: Desk) -> None:
    run = await desk.finished()
    await desk.repeats.unheard(run)
    assert await desk.found() == run.id
    assert await desk.found(waits=False) is None
    await desk.clock.advance(LATE_SECONDS - 1)
    await desk.repeats.unheard(run)
    await desk.clock.advance(LATE_SECONDS)
    assert await desk.found() == run.id
    await desk.clock.advance(1)
    assert await desk.found() is None


async def test_only_the_newest_of_the_same_words_counts(desk: Desk) -> None:
    await desk.repeats.unheard(await desk.finished())
    await desk.clock.advance(1)
    await desk.finished()
    assert await desk.found() is None


async def test_what_others_said_is_not_what_i_said(desk: Desk) -> None:
    await desk.repeats.unheard(await desk.finished())
    sought = Repeat(desk.conversation, "same", 70.0, True)
    assert await desk.repeats.find(replace(DEFAULT_ACTOR, user_id="user-2"), sought) is None


async def test_who_waited_for_a_lost_process_has_heard_nothing(desk: Desk) -> None:
    desk.house.model.script(Hang())
    run = await desk.house.start(desk.conversation, body_digest="same")
    await desk.house.model_called(1)
    desk.house.model.script(Say("taken over"))
    await desk.house.engine.close(grace_seconds=0)
    async with opened(str(desk.house.database.engine.url), clock=desk.clock, owner="next", sweep=False) as successor:
        successor.model.script(Say("taken over"))
        await successor.engine.open(alone=True)
        await successor.records(run.id)
    assert await desk.found() == run.id
    assert await desk.found(waits=False) is None
    await desk.clock.advance(LATE_SECONDS + 1)
    assert await desk.found() is None
