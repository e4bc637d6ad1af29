"""Races and crashes between two steps: each was found by reading the code, and stays here as a test."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from engine.house import House, opened
from holdfast.core.conversation.messages import Approval, Draft, Text, UserBody
from holdfast.core.records import Run
from holdfast.ports.paging import Page
from holdfast.ports.stores.approval_store import ApprovalFilter
from holdfast.ports.stores.run_store import Change, Claim, KnownContext, Lease, NewPage, Written
from holdfast.records.approvals import Approvals
from holdfast.storage.records.approval_store import SqlApprovals
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.testing.script import Call, Hang, Say, Slow


async def died(house: House, run: Run) -> None:
    """The process that drives this run is gone."""
    task, _ = house.engine.worker.driving[run.id]
    task.cancel()
    await asyncio.wait({task})


async def test_after_two_compactions_memory_holds_what_the_rows_hold(house: House) -> None:
    conversation = await house.agent()
    for number in range(8):
        house.model.script(Say(f"answer {number}"))
        await house.finished(conversation, f"question {number}")
    for number in range(3):
        house.model.script(Say(f"summary {number}"))
        await house.maintenance.compact(conversation, None)
        house.model.script(Say("and on"))
        await house.finished(conversation, "more")
        sent = [message.id for message in house.model.requests[-1].messages]
        assert sent == list(await house.conversations.context_ids(conversation))[:-1]


async def test_cancelling_a_run_that_was_answered_touches_no_later_approval(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    first = await house.finished(conversation)
    house.model.script(Say("ok"))
    await house.finished(conversation, "", answers=(Approval("c1", False),))
    house.model.script(Call("pay", id="c2"))
    await house.finished(conversation, "again")
    assert await house.engine.cancel(first, rollback=True)
    snapshot = await house.deps.store.snapshot(conversation)
    assert [call.status for call in snapshot.calls] == ["awaiting"]
    house.model.script(Say("paid"))
    assert (await house.finished(conversation, "", answers=(Approval("c2", True),))).stop_reason == "end_turn"


async def test_remembering_edited_arguments_allows_the_edited_ones_only(house: House) -> None:
    store = SqlApprovals(house.database, house.deps.clock)
    inbox = Approvals(store, house.engine.start)
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", {"text": "1000"}, id="c1"))
    await house.finished(conversation)
    (asked,) = await store.listing(DEFAULT_ACTOR, ApprovalFilter(), Page())
    house.model.script(Say("ok"))
    edited = Approval("c1", True, None, '{"text": "1"}')
    run = await inbox.decide(DEFAULT_ACTOR, asked, edited, seen_digest=None, remember="arguments")
    await house.records(run.id)
    house.model.script(Call("pay", {"text": "1"}, id="c2"))
    house.model.script(Call("pay", {"text": "1000"}, id="c3"))
    assert (await house.finished(conversation)).stop_reason == "requires_approval"
    assert [job.arguments["text"] for job in house.toolbox.calls] == ["1", "1"]


async def test_messages_sent_with_an_answer_are_read_once_after_any_takeover(database_url: str) -> None:
    async with opened(database_url) as house:
        conversation = await house.agent("pay", "look", gated=("pay",), on_unknown="ask")
        house.model.script(Call("pay", id="c1"))
        await house.finished(conversation)

        look = house.toolbox.block("look")
        house.model.script(Call("look", id="c2"))
        follow_up = (Draft(UserBody((Text("and hurry"),))),)
        run = await house.start(conversation, "", answers=(Approval("c1", True),), messages=follow_up)
        await look.begun.wait()
        await died(house, run)
        async with opened(database_url, owner="other") as other:
            await other.records(run.id)
            waiting = await other.history.run(DEFAULT_ACTOR, run.id)
            assert waiting.stop_reason == "requires_approval"
            other.model.script(Say("done"))
            await other.finished(conversation, "", answers=(Approval("c2", False),))
            assert (await other.kinds(conversation)).count("User") == 2


async def test_rules_remember_the_turn_after_a_takeover(database_url: str) -> None:
    async with opened(database_url) as house:
        rules = [{"type": "run_first", "tool_name": "look"}]
        conversation = await house.agent("look", "save", tool_rules=rules)
        house.model.script(Call("look", id="c1"))
        house.model.script(Hang())
        run = await house.start(conversation)
        await house.model_called(2)
        await died(house, run)
        async with opened(database_url, owner="other", sweep=False) as other:
            other.model.script(Say("done"))
            await other.engine.open(alone=True)
            records = await other.records(run.id)
            assert [tool.name for tool in other.model.requests[0].tools] == ["look", "save"]
            assert records[-1]["step_count"] == 2
            spent = [step.usage.total_tokens for step in await other.deps.store.run_steps(run.id)]
            assert records[-1]["total_tokens"] == sum(spent)


async def test_a_cancel_that_comes_as_the_run_begins_to_wait_is_not_lost(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    store = house.deps.store
    checkpoint = store.checkpoint

    async def cancel_first(lease: Lease, change: Change) -> Written:
        await store.ask_cancel(run.id, "user-1", "too late?", False)
        return await checkpoint(lease, change)

    store.checkpoint = cancel_first  # type: ignore[method-assign]
    run = await house.start(conversation)
    task, _ = house.engine.worker.driving[run.id]
    await asyncio.wait({task})
    store.checkpoint = checkpoint  # type: ignore[method-assign]
    assert (await house.history.run(DEFAULT_ACTOR, run.id)).status == "cancelled"
    house.model.script(Say("free"))
    assert (await house.finished(conversation)).stop_reason == "end_turn"


async def test_one_run_that_cannot_be_loaded_does_not_keep_others_from_being_taken_over(database_url: str) -> None:
    async with opened(database_url) as house:
        lines = [await house.agent() for _ in range(2)]
        runs = []
        for number, line in enumerate(lines):
            house.model.script(Hang())
            runs.append(await house.start(line))
            await house.model_called(number + 1)
            await died(house, runs[-1])
        async with opened(database_url, owner="other", sweep=False) as other:
            loaded = other.deps.store.takeover

            async def broken(claim: Claim, known: KnownContext | None = None) -> object:
                if claim.run.conversation_id == lines[0]:
                    raise RuntimeError("its rows cannot be read")
                return await loaded(claim, known)

            other.deps.store.takeover = broken  # type: ignore[method-assign, assignment]
            other.model.script(Say("done"))
            await other.engine.open(alone=True)
            assert (await other.records(runs[1].id))[-2]["stop_reason"] == "end_turn"


async def test_what_was_sent_along_survives_a_lost_call_and_a_cancel(database_url: str) -> None:
    """Found by the simulator, seed 1976: the message was accepted with the answer, and then nobody ever wrote it."""
    async with opened(database_url) as house:
        conversation = await house.agent("pay", gated=("pay",))
        house.model.script(Call("pay", id="c1"))
        await house.finished(conversation)
        pay = house.toolbox.block("pay")
        follow_up = (Draft(UserBody((Text("and hurry"),))),)
        run = await house.start(conversation, "", answers=(Approval("c1", True),), messages=follow_up)
        await pay.begun.wait()
        await died(house, run)
        async with opened(database_url, owner="other") as other:
            await other.records(run.id)
            waiting = await other.history.run(DEFAULT_ACTOR, run.id)
            assert waiting.stop_reason == "requires_approval"
            assert await other.engine.cancel(waiting)
            assert (await other.kinds(conversation))[-3:] == ["ApprovalResponse", "ToolReturns", "User"]


async def test_a_rollback_keeps_what_was_sent_along_in_the_history(house: House) -> None:
    """Found by the simulator, seed 3247."""
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    await house.finished(conversation)
    pay = house.toolbox.block("pay")
    follow_up = (Draft(UserBody((Text("and hurry"),))),)
    run = await house.start(conversation, "", answers=(Approval("c1", True),), messages=follow_up)
    await pay.begun.wait()
    assert await house.engine.cancel(run, rollback=True)
    assert (await house.kinds(conversation)).count("User") == 2
    assert len(await house.conversations.context_ids(conversation)) == 1


async def test_a_worker_that_slept_past_its_lease_starts_no_tool(database_url: str) -> None:
    """Found by the simulator, seed 2960: written as started, then frozen, then taken over and decided elsewhere."""
    async with opened(database_url, sweep=False) as house:
        conversation = await house.agent("pay")
        house.model.script(Call("pay", id="c1"))
        store, clock = house.deps.store, house.deps.clock
        checkpoint = store.checkpoint

        async def then_sleep(lease: Lease, change: Change) -> Written:
            asked = await checkpoint(replace(lease, expires_at=clock.now() - timedelta(seconds=1)), change)
            late = clock.now() + timedelta(seconds=11)
            await store.claim(run.id, "other", clock.now(), late)
            held_lease.stored = replace(lease, expires_at=clock.now())
            return asked

        run = await house.start(conversation)
        task, held_lease = house.engine.worker.driving[run.id]
        held_lease.kept = lambda lease: None  # type: ignore[method-assign]
        store.checkpoint = then_sleep  # type: ignore[method-assign]
        await asyncio.wait({task})
        assert house.toolbox.calls == []


async def test_a_compaction_over_a_conversation_that_moves_on_is_decided_again(house: House) -> None:
    conversation = await house.agent()
    for number in range(4):
        house.model.script(Say(f"answer {number}"))
        await house.finished(conversation, f"question {number}")
    change_idle = house.deps.store.change_idle
    moved: list[str] = []

    async def meanwhile(change: Change) -> None:
        if not moved:
            moved.append(change.conversation_id)
            house.model.script(Say("quick"))
            await house.finished(conversation, "in between")
        await change_idle(change)

    house.deps.store.change_idle = meanwhile  # type: ignore[method-assign]
    house.model.script(Say("a summary"))
    house.model.script(Say("another summary"))
    await house.maintenance.compact(conversation, None)
    assert "Summary" in await house.kinds(conversation)


async def test_a_page_that_could_not_be_stored_leaves_no_hole_in_the_log(database_url: str) -> None:
    """As on a full disk: one page fails, the next would succeed. What was seen live is what is replayed."""
    async with opened(database_url, lease_seconds=0.5) as house:
        conversation = await house.agent()
        house.model.script(Slow(0), Say("word " * 20_000))  # without a pause: there is always more to show
        house.model.script(Say("and again"))
        append, pages = house.deps.store.append_events, 0

        async def full_once(new: Sequence[NewPage]) -> Sequence[str]:
            nonlocal pages
            pages += 1
            if pages == 3:
                raise OSError("the disk is full")
            return await append(new)

        house.deps.store.append_events = full_once  # type: ignore[method-assign, assignment]
        run = await house.start(conversation, stream_tokens=True)
        seen = await house.records(run.id)
        assert pages > 3
        assert seen == await house.records(run.id)
        numbers = [record["seq_id"] for record in seen if record.get("seq_id")]
        assert numbers == list(range(1, len(numbers) + 1))
        assert (await house.history.run(DEFAULT_ACTOR, run.id)).status == "completed"
