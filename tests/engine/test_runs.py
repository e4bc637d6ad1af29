"""The engine end to end on a real database: accepting, driving, following, cancelling, taking over."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from engine.house import House, opened
from holdfast.core.conversation.messages import Approval, AssistantBody, ToolResult, ToolReturnsBody
from holdfast.core.errors import ConversationBusy, Invalid, LostLease, PendingApproval
from holdfast.core.run_request import RunRequest
from holdfast.core.state import Crashed, Recovered
from holdfast.engine.run.takeover import found, take_over
from holdfast.ports.stores.run_store import Change, Claim, Lease, NewPage
from holdfast.ports.toolbox import ToolJob
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.testing.script import Call, Fail, Hang, Say, Think


async def test_a_turn_is_stored_and_its_agent_knows_how_it_ended(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Think("hm"), Say("hello there"))
    run = await house.finished(conversation)
    assert (run.status, run.stop_reason) == ("completed", "end_turn")
    assert await house.kinds(conversation) == ["System", "User", "Assistant"]
    snapshot = await house.deps.store.snapshot(conversation)
    assert snapshot.agent.last_stop_reason == "end_turn"
    assert [m.id for m in snapshot.context or ()] == list(await house.conversations.context_ids(conversation))


async def test_a_tool_runs_once_with_its_own_idempotency_key(house: House) -> None:
    conversation = await house.agent("look")
    house.model.script(Call("look", {"text": "a"}))
    house.model.script(Say("seen"))
    await house.finished(conversation)
    assert [job.arguments for job in house.toolbox.calls] == [{"text": "a"}]
    assert house.toolbox.calls[0].idempotency_key.startswith("step-")
    assert await house.kinds(conversation) == ["System", "User", "Assistant", "ToolReturns", "Assistant"]


async def test_a_tool_is_in_the_ledger_as_started_before_it_is_started(house: House) -> None:
    conversation = await house.agent("look")
    seen: list[str] = []

    async def look(job: ToolJob) -> str:
        snapshot = await house.deps.store.snapshot(conversation)
        seen.extend(call.status for call in snapshot.calls)
        return "ok"

    house.toolbox.does["look"] = look
    house.model.script(Call("look"))
    house.model.script(Say("done"))
    await house.finished(conversation)
    assert seen == ["started"]


async def test_a_second_request_is_refused_while_one_runs_and_names_it(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Hang())
    run = await house.start(conversation)
    with pytest.raises(ConversationBusy) as refused:
        await house.start(conversation)
    assert refused.value.run_id == run.id
    assert await house.engine.cancel(run)


async def test_of_two_requests_at_once_one_wins(house: House) -> None:
    conversation = await house.agent()
    for _ in range(2):
        house.model.script(Hang())
    outcomes = await asyncio.gather(*(house.start(conversation) for _ in range(5)), return_exceptions=True)
    runs = [o for o in outcomes if not isinstance(o, BaseException)]
    assert len(runs) == 1
    assert all(isinstance(o, ConversationBusy) for o in outcomes if isinstance(o, BaseException))
    await house.engine.cancel(runs[0])


async def test_cancel_mid_stream_closes_the_model_and_keeps_what_was_seen(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Say("one two three"), Hang())
    run = await house.start(conversation, stream_tokens=True)
    async for batch in house.engine.follow(run.id):
        if any("three" in record for record in batch.records):
            break
    assert await house.engine.cancel(run, "user-1", "changed my mind")
    await asyncio.wait_for(house.model.closed_early.wait(), 5)
    after = await house.history.run(DEFAULT_ACTOR, run.id)
    assert (after.status, after.stop_reason) == ("cancelled", "cancelled")
    snapshot = await house.deps.store.snapshot(conversation)
    last = (snapshot.context or ())[-1].body
    assert isinstance(last, AssistantBody)
    assert last.interrupted
    stops = [r for r in await house.records(run.id) if r["message_type"] == "stop_reason"]
    assert stops == [{"message_type": "stop_reason", "stop_reason": "cancelled"}]
    house.model.script(Say("go on"))
    assert (await house.finished(conversation)).status == "completed"


async def test_cancel_mid_tool_stops_the_tool_and_every_call_gets_its_return(house: House) -> None:
    conversation = await house.agent("look", "wait")
    wait = house.toolbox.block("wait")
    house.model.script(Call("look", id="c1"), Call("wait", id="c2"))
    run = await house.start(conversation)
    await wait.begun.wait()
    await house.engine.cancel(run)
    assert wait.ended.is_set()
    snapshot = await house.deps.store.snapshot(conversation)
    body = (snapshot.context or ())[-1].body
    assert isinstance(body, ToolReturnsBody)
    assert {r.call_id: r.status for r in body.results} == {"c1": "success", "c2": "error"}
    assert snapshot.calls == ()


async def test_cancel_while_a_human_is_asked_frees_the_conversation(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay"))
    run = await house.finished(conversation)
    assert run.stop_reason == "requires_approval"
    with pytest.raises(PendingApproval):
        await house.start(conversation)
    assert await house.engine.cancel(run)
    assert await house.engine.cancel(await house.history.run(DEFAULT_ACTOR, run.id))
    assert (await house.history.run(DEFAULT_ACTOR, run.id)).status == "cancelled"
    assert (await house.kinds(conversation))[-2:] == ["ApprovalResponse", "ToolReturns"]
    house.model.script(Say("fine"))
    assert (await house.finished(conversation)).stop_reason == "end_turn"
    assert house.toolbox.calls == []


async def test_a_waiting_call_is_answered_by_a_new_run_of_the_same_turn(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    first = await house.finished(conversation)
    house.model.script(Say("paid"))
    second = await house.finished(conversation, "", answers=(Approval("c1", True),))
    assert (second.turn_id, second.stop_reason) == (first.id, "end_turn")
    assert [job.name for job in house.toolbox.calls] == ["pay"]


async def test_an_answer_that_does_not_fit_changes_nothing(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    await house.finished(conversation)
    before = await house.kinds(conversation)
    with pytest.raises(Invalid, match="Invalid tool call IDs"):
        await house.start(conversation, "", answers=(Approval("c9", True),))
    assert await house.kinds(conversation) == before


async def test_a_client_answers_its_own_tool(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    await house.finished(conversation)
    house.model.script(Say("thanks"))
    given = ToolResult("c1", "success", "done by hand")
    await house.finished(conversation, "", answers=(given,))
    assert house.toolbox.calls == []
    sent = house.model.requests[-1].messages[-1].body
    assert isinstance(sent, ToolReturnsBody)
    assert sent.results[0].content == "done by hand"


async def test_a_model_failure_is_on_the_run_and_the_agent_goes_on(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Fail.of("llm_authentication"))
    run = await house.finished(conversation)
    assert (run.status, run.stop_reason) == ("failed", "llm_api_error")
    assert run.metadata["error"]["error_type"] == "llm_authentication"
    assert run.metadata["run_type"] == "send_message"
    house.model.script(Say("better"))
    assert (await house.finished(conversation)).status == "completed"


async def test_a_model_failure_after_an_approval_does_not_run_the_tool_again(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    await house.finished(conversation)
    house.model.script(Fail.of("llm_error"))
    await house.finished(conversation, "", answers=(Approval("c1", True),))
    house.model.script(Say("again"))
    assert (await house.finished(conversation, "", answers=(Approval("c1", True),))).status == "completed"
    assert len(house.toolbox.calls) == 1


async def test_any_number_of_followers_see_the_same_records(house: House) -> None:
    conversation = await house.agent("look")
    house.model.script(Say("I look"), Call("look"))
    house.model.script(Say("I saw " * 50))
    run = await house.start(conversation, stream_tokens=True)
    live = await asyncio.gather(*(house.records(run.id) for _ in range(20)))
    replay = await house.records(run.id)
    assert all(records == replay for records in live)
    middle = replay[5]["seq_id"]
    assert await house.records(run.id, after=middle) == replay[middle:]


async def test_an_overflow_is_compacted_and_the_turn_goes_on(house: House) -> None:
    conversation = await house.agent()
    for number in range(4):
        house.model.script(Say(f"answer {number}"))
        await house.finished(conversation, f"question {number}")
    house.model.script(Fail.of("context_overflow"))
    house.model.script(Say("they talked"))
    house.model.script(Say("after"))
    run = await house.finished(conversation, "one more", include_compaction=True)
    assert run.stop_reason == "end_turn"
    snapshot = await house.deps.store.snapshot(conversation)
    kinds = [type(m.body).__name__ for m in snapshot.context or ()]
    assert kinds[:2] == ["SystemBody", "SummaryBody"]
    assert len(kinds) < len(await house.kinds(conversation))
    assert "summary_message" in [r["message_type"] for r in await house.records(run.id)]
    assert len(await house.kinds(conversation)) == 12


# ---- leases and takeover


async def lost_run(house: House, conversation: str) -> str:
    """A run as a process leaves it that dies while its model call is under way."""
    house.model.script(Hang())
    run = await house.start(conversation)
    await house.model_called(1)
    task, _ = house.engine.worker.driving[run.id]
    task.cancel()
    await asyncio.wait({task})
    return run.id


async def test_a_run_whose_owner_died_is_taken_over_and_finished(database_url: str) -> None:
    async with opened(database_url) as house:
        conversation = await house.agent()
        run_id = await lost_run(house, conversation)
        async with opened(database_url, owner="other", sweep=False) as other:
            other.model.script(Say("took over"))
            await other.engine.open(alone=True)
            records = await other.records(run_id)
            assert records[-2]["stop_reason"] == "end_turn"
            assert await other.kinds(conversation) == ["System", "User", "Assistant"]


async def test_a_run_that_crashes_every_owner_is_given_up_unless_it_makes_progress(house: House) -> None:
    run = await house.deps.store.run(await lost_run(house, await house.agent()))
    request = RunRequest.from_json(run.request)
    eleventh = Lease(run.id, "other", 11, house.deps.clock.now())
    given_up = found(run, request, eleventh, steps=0)
    assert isinstance(given_up, Crashed)
    assert "taken over 10 times and got no further than step 0" in given_up.message
    assert isinstance(found(run, request, eleventh, steps=1), Recovered)


async def test_a_run_that_was_claimed_longer_ago_than_its_lease_is_left_alone(house: House) -> None:
    """The process that claimed it stood still, and another may have it."""
    house.model.script(Hang())
    run = await house.start(await house.agent())
    late = Claim(Lease(run.id, "late", 2, house.deps.clock.now()), run)
    with pytest.raises(LostLease, match="claimed by another process"):
        await take_over(house.deps, late)


@pytest.mark.parametrize("lost", ["taken by another", "given back", "declared void"])
async def test_a_process_that_lost_the_lease_can_write_nothing(house: House, lost: str) -> None:
    conversation = await house.agent()
    run_id = await lost_run(house, conversation)
    store, now = house.deps.store, house.deps.clock.now()
    later = now + timedelta(minutes=1)
    old = Lease(run_id, "test", 1, later)
    if lost == "given back":
        await store.release(old)
    elif lost == "declared void":
        await store.free_leases(["test"])
    else:
        new = await store.claim(run_id, "other", later, later + timedelta(seconds=10))
        assert new is not None
        assert new.lease.epoch == 2
    snapshot = await store.snapshot(conversation)
    change = Change(conversation, snapshot.version, snapshot.next_seq, events=("data: {}\n\n",), first_event=2)
    with pytest.raises(LostLease):
        await store.checkpoint(old, change)
    assert await store.append_events([NewPage(old, 2, ["x"])]) == [run_id]
    assert await store.renew([old]) == [run_id]
    assert await store.last_event(run_id) == 1
    free = await store.claim(run_id, "third", now, later) is not None
    assert free == (lost != "taken by another")


async def test_a_tool_lost_with_its_worker_is_shown_to_a_human_and_not_run_again(database_url: str) -> None:
    async with opened(database_url) as house:
        conversation = await house.agent("pay", on_unknown="ask")
        pay = house.toolbox.block("pay")
        house.model.script(Call("pay", id="c1"))
        run = await house.start(conversation)
        await pay.begun.wait()
        task, _ = house.engine.worker.driving[run.id]
        task.cancel()
        await asyncio.wait({task})
        async with opened(database_url, owner="other") as other:
            records = await other.records(run.id)
            assert records[-2]["stop_reason"] == "requires_approval"
            assert records[-3]["message_type"] == "approval_request_message"
            assert other.toolbox.calls == []
            other.model.script(Say("so it was paid"))
            answered = await other.finished(conversation, "", answers=(ToolResult("c1", "success", "it went through"),))
            assert answered.stop_reason == "end_turn"
            assert other.toolbox.calls == []


async def test_an_answer_without_a_waiting_call_changes_nothing(house: House) -> None:
    conversation = await house.agent()
    with pytest.raises(Invalid, match="No tool call is currently awaiting approval"):
        await house.engine.start(DEFAULT_ACTOR, conversation, RunRequest(answers=(Approval("c1", True),)))
    assert await house.kinds(conversation) == ["System"]
