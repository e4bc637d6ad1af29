"""Additions to the API: partial answers, edits, policies, allowances, expiry, queueing, and the audit log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.house import TOOL, House, opened
from holdfast.core.conversation.messages import Approval, ToolResult, ToolReturnsBody, plain_text
from holdfast.core.errors import AlreadyDecided, Conflict, ConversationBusy, Invalid
from holdfast.core.records import Run
from holdfast.engine.chores.approval_expiry import ApprovalExpiry
from holdfast.ports.paging import Page
from holdfast.ports.stores.approval_store import Approval as Asked
from holdfast.ports.stores.approval_store import ApprovalFilter
from holdfast.records.approvals import Approvals
from holdfast.records.tools import NewTool
from holdfast.storage.records.approval_store import SqlApprovals
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.runs.audit_check import verify
from holdfast.storage.schema.record_tables import decisions
from holdfast.testing.clock import FakeClock
from holdfast.testing.script import Call, Hang, Say


def inbox_store(house: House) -> SqlApprovals:
    return SqlApprovals(house.database, house.deps.clock)


def inbox(house: House) -> Approvals:
    return Approvals(inbox_store(house), house.engine.start)


async def waiting(house: House) -> list[Asked]:
    return list(await inbox_store(house).listing(DEFAULT_ACTOR, ApprovalFilter(), Page(order="asc")))


async def say(house: House, asked: Asked, answer: Any, remember: str | None = None) -> Run:
    return await inbox(house).decide(DEFAULT_ACTOR, asked, answer, seen_digest=None, remember=remember)


async def last_returns(house: House, conversation: str) -> dict[str, str]:
    snapshot = await house.deps.store.snapshot(conversation)
    found = [m.body for m in snapshot.context or () if isinstance(m.body, ToolReturnsBody)]
    return {result.call_id: plain_text(result.content) for result in found[-1].results}


async def test_a_batch_is_decided_one_by_one_and_goes_on_with_the_last(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(*(Call("pay", {"text": str(n)}, id=f"c{n}") for n in range(3)))
    await house.finished(conversation)
    one, two, three = await waiting(house)
    first = await say(house, three, Approval("c2", False, "no"))
    assert first.stop_reason == "requires_approval"
    await say(house, one, Approval("c0", True))
    assert house.toolbox.calls == []
    house.model.script(Say("done"))
    last = await say(house, two, ToolResult("c1", "success", "by hand"))
    await house.records(last.id)
    assert [job.arguments["text"] for job in house.toolbox.calls] == ["0"]
    assert list(await last_returns(house, conversation)) == ["c1", "c2", "c0"]


async def test_of_many_racing_decisions_one_wins(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    await house.finished(conversation)
    (asked,) = await waiting(house)
    house.model.script(Say("paid"))
    answers = [Approval("c1", number % 2 == 0, str(number)) for number in range(1000)]
    outcomes = await asyncio.gather(*(say(house, asked, a) for a in answers), return_exceptions=True)
    won = [o for o in outcomes if isinstance(o, Run)]
    assert len(won) == 1
    assert all(isinstance(o, Conflict) for o in outcomes if not isinstance(o, Run))
    await house.records(won[0].id)
    assert len(house.toolbox.calls) <= 1
    with pytest.raises(AlreadyDecided):
        await say(house, (await inbox_store(house).get(DEFAULT_ACTOR, asked.id)), Approval("c1", True))


async def test_edited_arguments_are_run_and_everybody_is_told(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", {"text": "100"}, id="c1"))
    await house.finished(conversation)
    with pytest.raises(Invalid, match="do not fit"):
        await house.start(conversation, "", answers=(Approval("c1", True, None, '{"text": 5, "x": 1}'),))
    house.model.script(Say("ok"))
    await house.finished(conversation, "", answers=(Approval("c1", True, "less", '{"text": "10"}'),))
    assert house.toolbox.calls[0].arguments == {"text": "10"}
    assert 'This call ran with: {"text": "10"}' in (await last_returns(house, conversation))["c1"]
    found = await inbox_store(house).listing(DEFAULT_ACTOR, ApprovalFilter(waiting=False), Page())
    assert found[0].edited == '{"text": "10"}'
    assert found[0].call.arguments == '{"text":"100"}'
    assert found[0].decision is not None
    assert (found[0].decision.kind, found[0].decision.decided_by) == ("edited", DEFAULT_ACTOR.user_id)


async def test_a_tool_that_changed_after_the_request_does_not_run(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    await house.finished(conversation)
    source = TOOL.format(name="pay").replace("return text", 'return "twice"')
    await house.tools.put(DEFAULT_ACTOR, NewTool(source_code=source, default_requires_approval=True))
    house.model.script(Say("oh"))
    await house.finished(conversation, "", answers=(Approval("c1", True),))
    assert house.toolbox.calls == []
    assert "was changed after approval was asked for" in (await last_returns(house, conversation))["c1"]


async def test_a_policy_allows_small_amounts_asks_for_others_and_denies_some(database_url: str) -> None:
    policies = [
        {"tool": "pay", "when": [{"argument": "text", "op": "eq", "value": "small"}], "then": "allow", "name": "small"},
        {"tool": "pay", "when": [{"argument": "text", "op": "eq", "value": "evil"}], "then": "deny", "name": "evil"},
    ]
    async with opened(database_url) as house:
        conversation = await house.agent("pay", gated=("pay",), approval_policies=policies)
        house.model.script(Call("pay", {"text": "small"}, id="c1"), Call("pay", {"text": "evil"}, id="c2"))
        house.model.script(Call("pay", {"text": "big"}, id="c3"))
        run = await house.start(conversation, stream_tokens=True)
        records = await house.records(run.id)
        assert [job.arguments["text"] for job in house.toolbox.calls] == ["small"]
        kinds = [r["message_type"] for r in records]
        assert kinds.count("tool_call_message") == kinds.count("approval_request_message") == 1
        assert records[-2]["stop_reason"] == "requires_approval"
        with house.database.engine.connect() as connection:
            made = {(row.call_id, row.kind, row.decided_by) for row in connection.execute(decisions.select())}
        assert made == {("c1", "allowed", "policy:small"), ("c2", "refused", "policy:evil")}


async def test_what_was_allowed_for_the_conversation_is_not_asked_again_until_revoked(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", {"text": "a"}, id="c1"))
    await house.finished(conversation)
    house.model.script(Say("ok"))
    (asked,) = await waiting(house)
    await house.records((await say(house, asked, Approval("c1", True), remember="arguments")).id)
    house.model.script(Call("pay", {"text": "a"}, id="c2"))
    house.model.script(Call("pay", {"text": "b"}, id="c3"))
    assert (await house.finished(conversation)).stop_reason == "requires_approval"
    assert [job.call_id for job in house.toolbox.calls] == ["c1", "c2"]
    await house.engine.cancel((await house.history.open_runs(DEFAULT_ACTOR))[0])
    (kept,) = await inbox_store(house).allowances(DEFAULT_ACTOR, Page())
    await inbox_store(house).revoke(DEFAULT_ACTOR, kept.id)
    house.model.script(Call("pay", {"text": "a"}, id="c4"))
    assert (await house.finished(conversation)).stop_reason == "requires_approval"


async def expiring(house: House) -> ApprovalExpiry:
    store = inbox_store(house)
    deps, engine = house.deps, house.engine
    return ApprovalExpiry(store, deps.store, deps.clock, engine.start, engine.cancel, deps.approvals_announced)


@pytest.mark.parametrize("then", ["deny", "stop", "keep"])
async def test_an_unanswered_request_expires_as_configured(database_url: str, then: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        expiry = {"after_seconds": 60, "then": then, "warn_before_seconds": 10}
        conversation = await house.agent("pay", gated=("pay",), approval_expiry=expiry)
        house.model.script(Call("pay", id="c1"))
        await house.finished(conversation)
    await clock.advance(55)
    async with opened(database_url, clock=clock, owner="after a restart") as house:
        expiries = await expiring(house)
        await expiries.poll()
        told = await inbox_store(house).announcements(DEFAULT_ACTOR, 0, 10)
        assert [item.kind for item in told] == ["requested", "expiring"]
        assert len(await waiting(house)) == 1
        await clock.advance(10)
        house.model.script(Say("too late"))
        await expiries.poll()
        assert len(await waiting(house)) == (1 if then == "keep" else 0)
        assert house.toolbox.calls == []
        if then == "deny":
            run = (await house.history.runs(DEFAULT_ACTOR, _of(conversation), Page()))[0]
            await house.records(run.id)
            assert "Nobody answered within 60 seconds." in (await last_returns(house, conversation))["c1"]
            assert run.created_by == "expiry"


def _of(conversation: str) -> Any:
    from holdfast.ports.stores.history_store import RunFilter

    return RunFilter(conversation_id=conversation)


# ---- a message while something is pending or running


async def test_a_message_can_deny_what_waits_and_go_on(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    await house.finished(conversation)
    house.model.script(Say("never mind then"))
    run = await house.finished(conversation, "forget it", when_busy="deny_and_continue")
    assert run.stop_reason == "end_turn"
    assert house.toolbox.calls == []
    assert (await house.kinds(conversation))[-4:] == ["ApprovalResponse", "ToolReturns", "User", "Assistant"]


async def test_a_message_can_interrupt_what_runs(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Hang())
    running = await house.start(conversation, "one")
    house.model.script(Say("two it is"))
    run = await house.finished(conversation, "two", when_busy="interrupt")
    assert run.stop_reason == "end_turn"
    assert (await house.history.run(DEFAULT_ACTOR, running.id)).status == "cancelled"


async def test_queued_messages_are_answered_in_the_order_they_came(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    await house.finished(conversation, "zero")
    queued = [await house.start(conversation, f"m{number}", when_busy="queue") for number in range(3)]
    dropped = await house.start(conversation, "dropped", when_busy="queue")
    assert await house.engine.cancel(dropped)
    assert (await house.history.run(DEFAULT_ACTOR, dropped.id)).status == "cancelled"
    for text in ("after zero", "a0", "a1", "a2"):
        house.model.script(Say(text))
    await house.finished(conversation, "", answers=(Approval("c1", False),))
    for run in queued:
        records = await house.records(run.id)
        assert records[0]["message_type"] == "ping"
        assert records[-2]["stop_reason"] == "end_turn"
    said = [plain_text(r.messages[-1].body.parts) for r in house.model.requests[-3:]]  # type: ignore[union-attr]
    assert said == ["m0", "m1", "m2"]


async def test_without_a_policy_the_second_message_is_refused(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Hang())
    run = await house.start(conversation)
    with pytest.raises(ConversationBusy):
        await house.start(conversation)
    await house.engine.cancel(run)


# ---- the audit log


async def test_the_audit_log_is_a_chain_that_shows_where_it_was_changed(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    for number in range(4):
        house.model.script(Call("pay", id=f"c{number}"))
        await house.finished(conversation)
        house.model.script(Say("ok"))
        await house.finished(conversation, "", answers=(Approval(f"c{number}", number % 2 == 0, "because"),))
    with house.database.engine.begin() as connection:
        whole = verify(connection)
        assert (whole.checked, whole.broken_at) == (4, None)
        third = list(connection.execute(decisions.select().order_by(decisions.c.number)))[2].number
        connection.execute(decisions.update().where(decisions.c.number == third).values(decided_by="somebody else"))
        assert verify(connection).broken_at == third
