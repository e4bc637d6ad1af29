"""Cancels that have to reach far: runs whose owner is gone or does not listen, many at once, whole conversations."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from engine.house import House, opened
from holdfast.core.errors import ConversationBusy
from holdfast.core.records import Run
from holdfast.storage.people import DEFAULT_ACTOR
from holdfast.testing.script import Call, Say


async def held_by_another(house: House, conversation: str, lease_seconds: float) -> Run:
    """A run that a process took up which does not answer."""
    run = await house.start(conversation)
    now = house.wiring.clock.now()
    assert await house.wiring.store.claim(run.id, "frozen", now, now + timedelta(seconds=lease_seconds))
    return run


async def test_a_run_whose_owner_does_not_answer_is_stopped_when_its_lease_has_run_out(database_url: str) -> None:
    async with opened(database_url, alone=False, most_runs=0, lease_seconds=0.4) as api:
        conversation = await api.agent()
        run = await held_by_another(api, conversation, lease_seconds=0.4)
        assert await api.engine.cancel(run, "ann")
        after = await api.history.run(DEFAULT_ACTOR, run.id)
        assert (after.status, after.cancel_asked_by) == ("cancelled", "ann")
        assert await api.kinds(conversation) == ["System", "User"]
        await api.start(conversation, "next")


async def test_a_cancel_that_was_not_carried_out_says_so(database_url: str) -> None:
    async with opened(database_url, alone=False, most_runs=0, lease_seconds=0.1) as api:
        conversation = await api.agent()
        run = await held_by_another(api, conversation, lease_seconds=60)
        assert not await api.engine.cancel(run)
        assert (await api.history.run(DEFAULT_ACTOR, run.id)).status == "created"
        with pytest.raises(ConversationBusy, match=run.id):
            await api.start(conversation, "no, this", when_busy="interrupt")


async def test_whoever_takes_up_a_run_that_is_to_be_cancelled_asks_no_model(database_url: str) -> None:
    async with opened(database_url, sweep=False, most_runs=0) as left:
        conversation = await left.agent()
        run = await left.start(conversation)
        await left.wiring.store.ask_cancel(run.id, "ann", None, False)
    async with opened(database_url) as found:
        await found.records(run.id)
        assert (await found.history.run(DEFAULT_ACTOR, run.id)).status == "cancelled"
        assert found.model.requests == []


async def test_one_whose_owner_does_not_answer_keeps_no_other_waiting(database_url: str) -> None:
    async with opened(database_url, alone=False, most_runs=0, lease_seconds=60) as api:
        stuck = await held_by_another(api, await api.agent(), lease_seconds=60)
        others = [await api.start(await api.agent()) for _ in range(5)]
        cancelling = asyncio.create_task(api.engine.cancel_all([stuck, *others]))
        async with asyncio.timeout(10):
            for run in others:
                await api.records(run.id)
                assert (await api.history.run(DEFAULT_ACTOR, run.id)).status == "cancelled"
        assert not cancelling.done()
        cancelling.cancel()


async def test_of_a_whole_conversation_nothing_begins_while_it_is_stopped(database_url: str) -> None:
    async with opened(database_url) as house:
        conversation = await house.agent("pay", gated=("pay",))
        house.model.script(Call("pay", id="c1"))
        waiting = await house.finished(conversation)
        queued = [await house.start(conversation, text, when_busy="queue") for text in ("second", "third")]
        done = await house.engine.cancel_all([*reversed(queued), waiting])
        assert done == dict.fromkeys((waiting.id, *(run.id for run in queued)), True)
        for run in (waiting, *queued):
            await house.records(run.id)
            assert (await house.history.run(DEFAULT_ACTOR, run.id)).status == "cancelled"
        assert len(house.model.requests) == 1
        house.model.script(Say("at your service"))
        assert (await house.finished(conversation, "next")).stop_reason == "end_turn"
