"""Cancel anything at any instant: each scenario of the retired server's cancellation page, and some it did not know.

After every one: run and agent say `cancelled`, there is exactly one stop reason on the stream, live or replayed, each
call has its return, what is stored is what is in the context, and the next message is accepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import get_args

import pytest

from engine.house import House, opened
from holdfast.core.conversation.messages import Approval, ToolReturnsBody
from holdfast.core.errors import AskedWrongly, Broken, LostLease
from holdfast.core.lifecycle import RunStatus, StopReason, status_for
from holdfast.core.model import Delta, ModelRequest
from holdfast.core.records import Run
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import MessageScope
from holdfast.ports.stores.run_store import Change, Lease, Rest
from holdfast.ports.toolbox import ToolJob
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.testing.script import Call, Fail, Hang, Say


async def check_cancelled(house: House, run: Run, conversation: str, *, in_context: bool = True) -> None:
    after = await house.history.run(DEFAULT_ACTOR, run.id)
    assert (after.status, after.stop_reason) == ("cancelled", "cancelled")
    snapshot = await house.deps.store.snapshot(conversation)
    assert snapshot.agent.last_stop_reason == "cancelled"
    assert snapshot.calls == ()
    stored = (
        await house.history.messages(DEFAULT_ACTOR, MessageScope(conversation_id=conversation), Page(limit=100))
    ).messages
    kept = {m.id for m in snapshot.context or ()}
    assert ({m.id for m in stored} == kept) is in_context
    stops = [r["stop_reason"] for r in await house.records(run.id) if r["message_type"] == "stop_reason"]
    assert stops[-1] == "cancelled"
    assert stops.count("cancelled") == 1
    house.model._replies.clear()
    house.model.script(Say("at your service"))
    assert (await house.finished(conversation, "next")).stop_reason == "end_turn"


async def check_ids_agree(house: House, conversation: str) -> None:
    """What is stored is what is in the context."""
    stored = (
        await house.history.messages(DEFAULT_ACTOR, MessageScope(conversation_id=conversation), Page(limit=100))
    ).messages
    assert [m.id for m in reversed(stored)] == list(await house.conversations.context_ids(conversation))


async def until_shown(house: House, run: Run, words: str) -> None:
    """Follow the run until a record contains these words."""
    async for batch in house.engine.follow(run.id):
        if any(words in record for record in batch.records):
            return


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("background", [False, True])
async def test_while_the_model_streams(house: House, tokens: bool, background: bool) -> None:
    conversation = await house.agent()
    house.model.script(Say("one two"), Hang())
    run = await house.start(conversation, stream_tokens=tokens, background=background)
    await until_shown(house, run, "two" if tokens else "ping")
    await house.model_called(1)
    assert await house.engine.cancel(run, "user-1", "enough")
    after = await house.history.run(DEFAULT_ACTOR, run.id)
    assert after.metadata["cancelled"] == {"by": "user-1", "reason": "enough"}
    (step,) = await house.deps.store.run_steps(run.id)
    if tokens:
        assert step.usage.prompt_tokens > 50, "the prompt was sent"
        assert 2 <= step.usage.completion_tokens < 20
    await check_cancelled(house, run, conversation)


async def test_between_two_steps(house: House) -> None:
    conversation = await house.agent("look")
    house.model.script(Call("look"))
    house.model.script(Hang())
    run = await house.start(conversation)
    await until_shown(house, run, "tool_return_message")
    await house.engine.cancel(run)
    assert "ToolReturns" in await house.kinds(conversation)
    await check_cancelled(house, run, conversation)


@pytest.mark.parametrize("together", [1, 3])
async def test_while_tools_run(house: House, together: int) -> None:
    conversation = await house.agent("wait")
    wait = house.toolbox.block("wait")
    house.model.script(*(Call("wait", id=f"c{n}") for n in range(together)))
    run = await house.start(conversation)
    await wait.begun.wait()
    await house.engine.cancel(run)
    snapshot = await house.deps.store.snapshot(conversation)
    returned = (snapshot.context or ())[-1].body
    assert isinstance(returned, ToolReturnsBody)
    assert len(returned.results) == together
    assert all("The user cancelled the request" in str(r.content) for r in returned.results)
    await check_cancelled(house, run, conversation)


@pytest.mark.parametrize("calls", [1, 3])
async def test_while_a_human_is_asked(house: House, calls: int) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(*(Call("pay", id=f"c{n}") for n in range(calls)))
    run = await house.finished(conversation, stream_tokens=True, background=True)
    assert await house.engine.cancel(run)
    assert house.toolbox.calls == []
    await check_cancelled(house, run, conversation)


async def test_together_with_an_approval_that_arrives_at_the_same_moment(house: House) -> None:
    for attempt in range(10):
        conversation = await house.agent("pay", gated=("pay",))
        house.model.script(Call("pay", id="c1"))
        waiting = await house.finished(conversation)
        house.model.script(Say("paid"))
        asked = house.start(conversation, "", answers=(Approval("c1", True),))
        first, second = (asked, house.engine.cancel(waiting)) if attempt % 2 else (house.engine.cancel(waiting), asked)
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
        assert all(not isinstance(o, Exception) or isinstance(o, AskedWrongly) for o in outcomes)
        for outcome in outcomes:
            if isinstance(outcome, Run):
                await house.records(outcome.id)
        assert (await house.deps.store.snapshot(conversation)).calls == ()
        await check_ids_agree(house, conversation)
        house.model._replies.clear()
        house.model.script(Say("next"))
        assert (await house.finished(conversation, "go on")).stop_reason == "end_turn"


async def test_during_compaction(house: House) -> None:
    conversation = await house.agent()
    for number in range(3):
        house.model.script(Say(f"answer {number}"))
        await house.finished(conversation, f"question {number}")
    house.model.script(Fail.of("context_overflow"))
    house.model.script(Hang())
    run = await house.start(conversation)
    await house.model_called(5)
    await house.engine.cancel(run)
    await check_cancelled(house, run, conversation)


async def test_twice_and_after_the_end(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Hang())
    run = await house.start(conversation)
    assert await asyncio.gather(*(house.engine.cancel(run) for _ in range(5))) == [True] * 5
    assert await house.engine.cancel(await house.history.run(DEFAULT_ACTOR, run.id))
    await check_cancelled(house, run, conversation)
    house.model.script(Say("done"))
    finished = await house.finished(conversation)
    assert await house.engine.cancel(finished)
    assert (await house.history.run(DEFAULT_ACTOR, finished.id)).status == "completed"


async def test_together_with_the_last_step(house: House) -> None:
    conversation = await house.agent("look")

    async def look(job: ToolJob) -> str:
        cancelling.append(asyncio.create_task(house.engine.cancel(run)))
        await asyncio.sleep(0)
        return "seen"

    cancelling: list[Awaitable[bool]] = []
    house.toolbox.does["look"] = look
    house.model.script(Call("look"))
    run = await house.start(conversation, max_steps=1)
    await house.records(run.id)
    await asyncio.gather(*cancelling)
    after = await house.history.run(DEFAULT_ACTOR, run.id)
    assert after.stop_reason in ("cancelled", "max_steps")
    snapshot = await house.deps.store.snapshot(conversation)
    assert snapshot.calls == ()
    assert snapshot.agent.last_stop_reason == after.stop_reason
    assert await house.kinds(conversation) == ["System", "User", "Assistant", "ToolReturns"]
    await check_ids_agree(house, conversation)
    stops = [r["stop_reason"] for r in await house.records(run.id) if r["message_type"] == "stop_reason"]
    assert stops == [after.stop_reason]
    house.model.script(Say("at your service"))
    assert (await house.finished(conversation, "next")).stop_reason == "end_turn"


async def test_by_another_process(database_url: str) -> None:
    """The request is in the database; the owner finds it with its next heartbeat."""
    async with opened(database_url, lease_seconds=0.3) as house:
        conversation = await house.agent()
        house.model.script(Say("a"), Hang())
        run = await house.start(conversation, stream_tokens=True)
        await until_shown(house, run, '"a"')
        await house.deps.store.ask_cancel(run.id, "user-2", "from elsewhere", False)
        await house.records(run.id)
        await check_cancelled(house, run, conversation)


async def test_the_stream_ends_before_the_connection_to_the_model_is_closed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, may_close = asyncio.Event(), asyncio.Event()
    stream = house.model.stream

    async def slow_to_close(request: ModelRequest) -> AsyncGenerator[Delta, None]:
        try:
            async for delta in stream(request):
                yield delta
        finally:
            closing.set()
            await may_close.wait()

    monkeypatch.setattr(house.model, "stream", slow_to_close)
    conversation = await house.agent()
    house.model.script(Say("half"), Hang())
    run = await house.start(conversation, stream_tokens=True)
    await until_shown(house, run, "half")
    cancelling = asyncio.create_task(house.engine.cancel(run))
    async with asyncio.timeout(30):
        assert (await house.records(run.id))[-1]["stop_reason"] == "cancelled"
        await closing.wait()
    may_close.set()
    assert await cancelling
    monkeypatch.undo()
    await check_cancelled(house, run, conversation)


async def in_the_middle(house: House, conversation: str, kind: str) -> Run:
    if kind == "waiting":
        house.model.script(Say("hm"), Call("pay", id="c1"))
        return await house.finished(conversation, "pay, please")
    house.model.script(Say("half"), Hang())
    run = await house.start(conversation, "say it", stream_tokens=True)
    await until_shown(house, run, "half")
    return run


@pytest.mark.parametrize("kind", ["waiting", "streaming"])
async def test_with_rollback_the_turn_disappears_from_the_context_and_stays_in_the_history(
    house: House, kind: str
) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Say("before"))
    await house.finished(conversation, "earlier")
    before = list(await house.conversations.context_ids(conversation))
    run = await in_the_middle(house, conversation, kind)
    await house.engine.cancel(run, rollback=True)
    assert list(await house.conversations.context_ids(conversation)) == before
    assert len(await house.kinds(conversation)) > len(before)
    await check_cancelled(house, run, conversation, in_context=False)
    sent = [type(m.body).__name__ for m in house.model.requests[-1].messages]
    assert sent == ["SystemBody", "UserBody", "AssistantBody", "UserBody"]


async def test_before_its_start_while_it_waits_in_the_queue(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Hang())
    running = await house.start(conversation)
    queued = await house.start(conversation, "me too", when_busy="queue")
    behind = await house.start(conversation, "and me", when_busy="queue")
    assert await house.engine.cancel(queued, "user-1", "no longer needed")
    after = await house.history.run(DEFAULT_ACTOR, queued.id)
    assert (after.status, after.stop_reason) == ("cancelled", "cancelled")
    assert after.metadata["cancelled"] == {"by": "user-1", "reason": "no longer needed"}
    stops = [r["stop_reason"] for r in await house.records(queued.id) if r["message_type"] == "stop_reason"]
    assert stops == ["cancelled"]
    assert (await house.history.run(DEFAULT_ACTOR, running.id)).status == "running"
    house.model.script(Say("your turn"))
    await house.engine.cancel(running)
    await house.records(behind.id)
    assert (await house.history.run(DEFAULT_ACTOR, behind.id)).stop_reason == "end_turn"
    said = [str(m.body) for m in (await house.deps.store.snapshot(conversation)).context or ()]
    assert not any("me too" in text for text in said)
    assert any("and me" in text for text in said)


async def test_the_step_that_was_cut_off_is_cancelled_and_the_ones_before_it_are_not(house: House) -> None:
    conversation = await house.agent("look", "wait")
    wait = house.toolbox.block("wait")
    house.model.script(Call("look"))
    house.model.script(Call("wait"))
    in_tool = await house.start(conversation)
    await wait.begun.wait()
    await house.engine.cancel(in_tool)
    house.model.script(Call("look"))
    house.model.script(Say("hm"), Hang())
    in_model = await house.start(conversation, stream_tokens=True)
    await until_shown(house, in_model, "hm")
    await house.engine.cancel(in_model)
    for run in (in_tool, in_model):
        steps = await house.deps.store.run_steps(run.id)
        assert [(s.status, s.stop_reason) for s in steps] == [("success", None), ("cancelled", "cancelled")]


@pytest.mark.parametrize("rollback", [False, True])
@pytest.mark.parametrize("when", ["a human is asked", "an approved tool runs", "a tool runs"])
async def test_the_step_whose_calls_were_cut_off_is_cancelled(house: House, when: str, rollback: bool) -> None:
    conversation = await house.agent("wait", gated=() if when == "a tool runs" else ("wait",))
    wait = house.toolbox.block("wait")
    house.model.script(Call("wait", id="c1"))
    asking = run = await house.start(conversation)
    if when != "a tool runs":
        await house.records(asking.id)
    if when == "an approved tool runs":
        run = await house.start(conversation, "", answers=(Approval("c1", True),))
    if when != "a human is asked":
        await wait.begun.wait()
    assert await house.engine.cancel(run, rollback=rollback)
    (step,) = await house.deps.store.run_steps(asking.id)
    assert (step.status, step.stop_reason) == ("cancelled", "cancelled")
    assert (step.tool_ns is None) is (when == "a human is asked")
    await check_cancelled(house, run, conversation, in_context=not rollback)


async def test_a_run_at_rest_cannot_be_written_to(house: House) -> None:
    for script, status in (((Say("done"),), "completed"), ((Fail.of("llm_error"),), "failed")):
        conversation = await house.agent()
        house.model.script(*script)
        run = await house.finished(conversation)
        assert run.status == status
        snapshot = await house.deps.store.snapshot(conversation)
        rest = Rest("cancelled", "cancelled", run.created_at, 0)
        change = Change(conversation, snapshot.version, snapshot.next_seq, rest=rest)
        lease = Lease(run.id, "test", 1, run.created_at)
        with pytest.raises(LostLease):
            await house.deps.store.checkpoint(lease, change)
        assert not await house.deps.store.settle_resting(run.id, change)
        assert await house.engine.cancel(run)
        assert await house.history.run(DEFAULT_ACTOR, run.id) == run


async def test_a_change_that_the_lifecycle_does_not_list_cannot_be_written(house: House) -> None:
    store = house.deps.store

    async def resting(conversation: str, status: RunStatus, stop: StopReason) -> Change:
        now = await store.snapshot(conversation)
        return Change(conversation, now.version, now.next_seq, rest=Rest(status, stop, house.deps.clock.now(), 0))

    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    waiting = await house.finished(conversation)
    for stop in get_args(StopReason):
        if stop != "cancelled":
            assert not await store.settle_resting(waiting.id, await resting(conversation, status_for(stop), stop))
    with pytest.raises(Broken, match="rests as failed"):
        await store.settle_resting(waiting.id, await resting(conversation, "cancelled", "error"))
    assert await house.history.run(DEFAULT_ACTOR, waiting.id) == waiting

    at_work = await house.agent()
    house.model.script(Hang())
    run = await house.start(at_work)
    await house.model_called(2)
    lease = Lease(run.id, "test", 1, house.deps.clock.now())
    for status in ("created", "running", "cancelled"):
        with pytest.raises(Broken, match="rests as completed"):
            await store.checkpoint(lease, await resting(at_work, status, "end_turn"))
    assert (await house.history.run(DEFAULT_ACTOR, run.id)).status == "running"
