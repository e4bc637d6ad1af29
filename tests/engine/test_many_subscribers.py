"""A thousand subscribers on one run, some of whom do not read: the run is not slowed, and all see the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from engine.house import House, opened
from holdfast.api.turns import respond
from holdfast.engine.stream import event_records, recent_records
from holdfast.storage.chores.retention import SqlOldEvents
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.testing.script import Call, Hang, Say
from holdfast.testing.waiting import until_found

SUBSCRIBERS = 1_000


def shown(house: House, run_id: str, after: int = 0) -> AsyncIterator[bytes]:
    response = respond.show(house.engine, run_id, after=after)
    return response.body_iterator  # type: ignore[return-value]


async def bytes_of(house: House, run_id: str, after: int = 0, pause_until: asyncio.Event | None = None) -> bytes:
    """What a subscriber sees; one that pauses reads a single batch and then nothing until told."""
    seen = []
    async for chunk in shown(house, run_id, after):
        seen.append(chunk)
        if pause_until is not None:
            await pause_until.wait()
    return b"".join(seen)


async def test_all_of_a_thousand_see_the_same_bytes_and_who_does_not_read_costs_nothing(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_records, "MAX_RECENT_CHARS", 10_000)  # who does not read soon finds nothing in memory
    async with opened(database_url) as house:
        conversation = await house.agent("look")
        house.model.script(Say("I look. " * 40), Call("look"))
        house.model.script(Say("I saw the sea. " * 60))
        over = asyncio.Event()
        run = await house.start(conversation, stream_tokens=True)
        readers = [
            asyncio.create_task(bytes_of(house, run.id, pause_until=None if number % 5 else over))
            for number in range(SUBSCRIBERS)
        ]

        async def run_ended() -> bool:
            return (await house.history.run(DEFAULT_ACTOR, run.id)).status != "running"

        await until_found(run_ended)
        assert not over.is_set()
        over.set()
        live = await asyncio.gather(*readers)
        replay = await bytes_of(house, run.id)
        assert len(replay) > 5 * 10_000
        assert set(live) == {replay}


async def test_a_stream_taken_up_anywhere_ends_with_the_same_bytes(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Say("one two three four five"))
    run = await house.start(conversation, stream_tokens=True)
    whole = [f"{record}\n\n" for record in (await bytes_of(house, run.id)).decode().split("\n\n")[:-1]]
    assert whole[-1] == event_records.DONE
    for cursor in range(1, len(whole)):
        rest = (await bytes_of(house, run.id, cursor)).decode().split("\n\n")[:-1]
        assert [f"{record}\n\n" for record in rest] == whole[cursor:]


async def test_a_silent_run_is_heard_to_be_alive(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(respond, "PING_SECONDS", 0.01)
    async with opened(database_url) as house:
        conversation = await house.agent()
        house.model.script(Hang())
        run = await house.start(conversation)
        records = shown(house, run.id)
        opening, *pings = [event_records.parse((await anext(records)).decode()) for _ in range(4)]
        assert {ping["message_type"] for ping in (opening, *pings)} == {"ping"}
        assert {(ping["run_id"], ping["seq_id"]) for ping in pings} == {(run.id, 1)}
        assert len({ping["id"] for ping in (opening, *pings)}) == 4
        await house.engine.cancel(run)
        assert [chunk async for chunk in records][-1] == event_records.DONE.encode()
        assert [r["message_type"] for r in await house.records(run.id)] == ["ping", "stop_reason"]


async def test_a_subscriber_is_told_of_the_gap_and_then_sees_the_rest(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Say("one two three four"))
    run = await house.start(conversation, stream_tokens=True)
    whole = (await bytes_of(house, run.id)).decode().split("\n\n")[:-1]
    later = house.deps.clock.now() + timedelta(days=8)
    assert await SqlOldEvents(house.database).drop_events(later, 1) == 1
    gap, *rest = (await bytes_of(house, run.id)).decode().split("\n\n")[:-1]
    said = event_records.parse(gap)
    assert (said["message_type"], said["first_seq_id"]) == ("gap", 1)
    assert rest == whole[said["last_seq_id"] :]
