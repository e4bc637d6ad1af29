"""Cancels of runs that this process does not drive: the owner is gone or does not react; many runs at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from engine.house import House, opened
from holdfast.core.conversation.messages import Approval, AssistantBody, UserBody, plain_text
from holdfast.core.errors import ConversationBusy
from holdfast.core.records import Run
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import MessageScope
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.testing.script import Call, Say


async def stored_ids(house: House, conversation: str) -> list[str]:
    page = Page(limit=100, order="asc")
    stored = (await house.history.messages(DEFAULT_ACTOR, MessageScope(conversation_id=conversation), page)).messages
    return [message.id for message in stored]


async def told(house: House, conversation: str) -> list[str]:
    """What users and the model said, as the next model call would read it."""
    context = (await house.deps.store.snapshot(conversation)).context or ()
    return [plain_text(m.body.parts) for m in context if isinstance(m.body, UserBody | AssistantBody)]


async def left_behind(house: House, run: Run) -> list[str]:
    """What is stored of a run."""
    stored = (
        await house.history.messages(DEFAULT_ACTOR, MessageScope(run_id=run.id), Page(limit=100, order="asc"))
    ).messages
    return [plain_text(m.body.parts) for m in stored if isinstance(m.body, UserBody)]


async def held_by_another(house: House, conversation: str, lease_seconds: float) -> Run:
    """A run of a process that does not react."""
    run = await house.start(conversation)
    now = house.deps.clock.now()
    assert await house.deps.store.claim(run.id, "frozen", now, now + timedelta(seconds=lease_seconds))
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
        assert (await api.history.run(DEFAULT_ACTOR, run.id)).status == "running"
        with pytest.raises(ConversationBusy, match=run.id):
            await api.start(conversation, "no, this", when_busy="interrupt")


async def test_a_takeover_of_a_run_to_be_cancelled_calls_no_model(database_url: str) -> None:
    async with opened(database_url, sweep=False, most_runs=0) as left:
        conversation = await left.agent()
        run = await left.start(conversation)
        await left.deps.store.ask_cancel(run.id, "ann", None, False)
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


async def test_of_a_whole_conversation_nothing_begins_while_it_is_stopped(house: House) -> None:
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
    assert (await told(house, conversation))[-2:] == ["second", "third"]
    assert await stored_ids(house, conversation) == await house.conversations.context_ids(conversation)
    house.model.script(Say("at your service"))
    assert (await house.finished(conversation, "next")).stop_reason == "end_turn"


@pytest.mark.parametrize("tokens", [False, True])
async def test_what_was_sent_and_cancelled_in_the_queue_is_kept_and_the_run_at_work_goes_on(
    house: House, tokens: bool
) -> None:
    conversation = await house.agent("wait")
    wait = house.toolbox.block("wait")
    house.model.script(Say("let us see"), Call("wait", id="c1"))
    house.model.script(Say("done"))
    at_work = await house.start(conversation, "first", stream_tokens=tokens)
    await wait.begun.wait()
    queued = [await house.start(conversation, text, when_busy="queue") for text in ("second", "third")]
    for run in queued:
        assert await house.engine.cancel(run)
    wait.may_end.set()
    await house.records(at_work.id)
    assert (await house.history.run(DEFAULT_ACTOR, at_work.id)).stop_reason == "end_turn"
    assert len(house.toolbox.calls) == 1
    assert await told(house, conversation) == ["first", "let us see", "done"]
    assert [await left_behind(house, run) for run in queued] == [["second"], ["third"]]
    house.model.script(Say("at your service"))
    assert (await house.finished(conversation, "next")).stop_reason == "end_turn"
    kinds = [type(m.body).__name__.removesuffix("Body") for m in house.model.requests[-1].messages]
    assert kinds == ["System", "User", "Assistant", "ToolReturns", "Assistant", "User"]


async def test_what_is_cancelled_in_the_queue_leaves_a_pending_approval_alone(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    await house.finished(conversation)
    queued = await house.start(conversation, "second", when_busy="queue")
    assert await house.engine.cancel(queued)
    assert await left_behind(house, queued) == ["second"]
    house.model.script(Say("paid"))
    answered = await house.finished(conversation, "", answers=(Approval("c1", True),))
    assert answered.stop_reason == "end_turn"
    assert await told(house, conversation) == ["hello", "paid"]


@pytest.mark.parametrize("rollback", [False, True])
async def test_what_is_cancelled_in_the_queue_of_a_free_conversation_is_in_the_context_unless_rolled_back(
    database_url: str, rollback: bool
) -> None:
    async with opened(database_url, alone=False, most_runs=0) as api:
        conversation = await api.agent()
        first = await api.start(conversation, "first")
        queued = await api.start(conversation, "second", when_busy="queue")
        await api.engine.cancel(first)
        assert (await api.history.run(DEFAULT_ACTOR, queued.id)).queued
        await api.engine.cancel(queued, rollback=rollback)
        assert await left_behind(api, queued) == ["second"]
        assert await told(api, conversation) == (["first"] if rollback else ["first", "second"])
        agree = await stored_ids(api, conversation) == await api.conversations.context_ids(conversation)
        assert agree is not rollback
