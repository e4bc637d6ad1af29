"""What is stored of a run: its metrics, tools and errors; and that nothing remains once it is deleted."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import pytest
from sqlalchemy import Connection, String, select

from engine.house import House, opened
from holdfast.core.conversation.messages import Approval
from holdfast.core.errors import Conflict, ModelErrorKind
from holdfast.core.model import Usage
from holdfast.core.records import Run
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import RunFilter
from holdfast.ports.stores.trace_store import RequestChange, Trace
from holdfast.records.conversations import ConversationPatch, Conversations
from holdfast.storage.chores.traces import SqlTraces
from holdfast.storage.records.agent_store import SqlAgents
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.schema.record_tables import metadata, runs
from holdfast.testing.clock import FakeClock
from holdfast.testing.script import Call, Count, FailMidStream, Finish, Hang, Say

WAYS: list[dict[str, Any]] = [
    {"run_type": "send_message"},
    {"run_type": "send_message_streaming", "stream_tokens": True},
    {"run_type": "send_message_async", "background": True},
]


def mentions(connection: Connection, run_id: str) -> dict[str, int]:
    """How many rows of each table name this run."""
    found = {}
    for table in metadata.sorted_tables:
        column = table.c.id if table is runs else table.c.get("run_id")
        if column is not None and (rows := connection.execute(select(table).where(column == run_id)).all()):
            found[table.name] = len(rows)
    return found


async def test_a_deleted_run_leaves_its_messages_and_nothing_that_names_it(house: House) -> None:
    conversation = await house.agent("look")
    house.model.script(Call("look"))
    house.model.script(Say("seen"))
    run = await house.finished(conversation, keys=("otid:a",), body_digest="d", callback_url="https://example.com/")
    await keep_a_trace(house, run)
    named = await house.database.read(mentions, run.id)
    assert {"run_keys", "run_tools", "steps", "ledger", "events", "outbox", "messages", "traces"} <= set(named)
    await house.history.delete_run(DEFAULT_ACTOR, run.id)
    assert await house.database.read(mentions, run.id) == {}
    assert await house.kinds(conversation) == ["System", "User", "Assistant", "ToolReturns", "Assistant"]
    house.model.script(Say("go on"))
    assert (await house.finished(conversation)).status == "completed"


def naming(connection: Connection, column: str, identity: str) -> dict[str, int]:
    """How many rows of each table name this thing."""
    found = {}
    for table in metadata.sorted_tables:
        if column not in table.c or not isinstance(table.c[column].type, String):
            continue
        if rows := connection.execute(select(table).where(table.c[column] == identity)).all():
            found[table.name] = len(rows)
    return found


async def test_a_deleted_agent_leaves_nothing_that_names_it_its_conversations_or_its_runs(house: House) -> None:
    conversation = await house.agent("look", "pay", gated=("pay",))
    house.model.script(Call("look"), Call("pay", id="c1"))
    asking = await house.finished(conversation, keys=("otid:a",), body_digest="d", callback_url="https://x.example/")
    house.model.script(Hang())
    at_work = await house.start(conversation, "", answers=(Approval("c1", True),))
    await house.model_called(2)
    for run in (asking, at_work):
        assert await house.database.read(naming, "run_id", run.id)
    await SqlAgents(house.database).delete(DEFAULT_ACTOR, asking.agent_id)
    for column, identity in (
        ("agent_id", asking.agent_id),
        ("conversation_id", conversation),
        ("run_id", asking.id),
        ("run_id", at_work.id),
    ):
        assert await house.database.read(naming, column, identity) == {}, column


async def test_a_deleted_conversation_leaves_nothing_that_names_it_and_its_agent_goes_on(house: House) -> None:
    default = await house.agent("look", "pay", gated=("pay",))
    agent_id = (await house.conversations.get(DEFAULT_ACTOR, default)).agent_id
    kept = Conversations(house.conversations, house.deps.store, house.deps.clock)
    line = await kept.create(DEFAULT_ACTOR, agent_id, ConversationPatch())
    house.model.script(Call("look"), Call("pay", id="c1"))
    asked = await house.finished(line.id, keys=("otid:a",), body_digest="d", callback_url="https://x.example/")
    house.model.script(Say("paid"))
    paid = await house.finished(line.id, "", answers=(Approval("c1", True),), allow={"pay": None})
    await keep_a_trace(house, paid)
    before = await house.database.read(naming, "conversation_id", line.id)
    assert {"runs", "run_keys", "messages", "context", "ledger", "allowances", "request_changes"} <= set(before)
    assert {"events", "steps", "outbox"} <= set(await house.database.read(naming, "run_id", asked.id))
    assert {"run_tools", "traces"} <= set(await house.database.read(naming, "run_id", paid.id))
    steps = [step.id for run in (asked, paid) for step in await house.deps.store.run_steps(run.id)]
    await kept.remove(line)
    gone = [("conversation_id", line.id), ("ancestor_id", line.id), ("id", line.id), ("run_id", asked.id)]
    gone += [("run_id", paid.id), ("turn_id", asked.id), *(("step_id", step) for step in steps)]
    for column, identity in gone:
        named = await house.database.read(naming, column, identity)
        assert set(named) <= {"decisions"}, column  # the audit log outlives what it tells of, by design
    house.model.script(Say("still here"))
    assert (await house.finished(default)).status == "completed"
    house.model.script(Say("and here"))
    assert (
        await house.finished((await kept.create(DEFAULT_ACTOR, agent_id, ConversationPatch())).id)
    ).stop_reason == "end_turn"


async def keep_a_trace(house: House, run: Run) -> None:
    (step, *_) = await house.deps.store.run_steps(run.id)
    now = house.deps.clock.now()
    trace = Trace(
        id="provider_trace-1",
        org_id=run.org_id,
        run_id=run.id,
        step_id=step.id,
        agent_id=run.agent_id,
        attempt=1,
        created_at=now,
        about={},
        body=b"packed",
    )
    change = RequestChange(
        history_id="provider_trace-1",
        number=1,
        conversation_id=run.conversation_id,
        created_at=now,
        kept=None,
        body=b"packed",
    )
    await SqlTraces(house.database).keep([trace], [change])


async def test_a_run_at_work_or_waiting_cannot_be_deleted_but_an_answered_one_can(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    waiting = await house.finished(conversation)
    with pytest.raises(Conflict, match="not finished"):
        await house.history.delete_run(DEFAULT_ACTOR, waiting.id)
    house.model.script(Hang())
    answering = await house.start(conversation, "", answers=(Approval("c1", True),))
    with pytest.raises(Conflict, match="not finished"):
        await house.history.delete_run(DEFAULT_ACTOR, waiting.id)
    await house.engine.cancel(answering)
    await house.history.delete_run(DEFAULT_ACTOR, waiting.id)
    assert await house.database.read(mentions, waiting.id) == {}


async def test_a_tool_counts_for_the_run_that_executed_it(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    asking = await house.finished(conversation)
    house.model.script(Say("paid"))
    paying = await house.finished(conversation, "", answers=(Approval("c1", True),))
    assert (asking.tools_used, paying.tools_used) == ((), ("pay",))
    tool = next(t for t in (await house.deps.store.snapshot(conversation)).tools)
    for name in ("pay", tool.id):
        found = await house.history.runs(DEFAULT_ACTOR, RunFilter(tools_used=(name,)), Page())
        assert [run.id for run in found] == [paying.id]


async def test_a_tool_that_was_cut_off_counts_as_used_and_one_that_never_began_does_not(house: House) -> None:
    conversation = await house.agent("wait", "look")
    wait = house.toolbox.block("wait")
    house.model.script(Call("wait", id="c1"), Call("look", id="c2"))
    run = await house.start(conversation)
    await wait.begun.wait()
    await house.engine.cancel(run)
    assert (await house.history.run(DEFAULT_ACTOR, run.id)).tools_used == ("wait",)
    found = await house.history.runs(DEFAULT_ACTOR, RunFilter(tools_used=("wait",)), Page())
    assert [run.id for run in found] == [run.id]


async def test_the_time_of_an_approved_tool_is_that_of_the_step_that_asked_for_it(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    house.model.script(Say("paid"))
    asking = await house.finished(conversation)
    (asked,) = await house.deps.store.run_steps(asking.id)
    answering = await house.finished(conversation, "", answers=(Approval("c1", True),))
    (step,) = await house.deps.store.run_steps(asking.id)
    assert asked.tool_ns is None
    assert step.tool_ns
    assert step.step_ns == (step.llm_ns or 0) + step.tool_ns
    assert (step.status, step.stop_reason) == ("success", "requires_approval")
    assert [s.tool_ns for s in await house.deps.store.run_steps(answering.id)] == [None]


async def test_steps_know_their_times_and_every_kind_of_token(house: House) -> None:
    conversation = await house.agent("look")
    house.model.script(Call("look"), Count(Usage(100, 20, 60, 10, 5)))
    house.model.script(Say("seen"), Count(Usage(200, 10, 150, None, 2)))
    run = await house.finished(conversation)
    first, second = await house.deps.store.run_steps(run.id)
    assert first.usage.plus(second.usage) == Usage(300, 30, 210, 10, 7)
    assert first.llm_ns
    assert first.tool_ns
    assert first.step_ns is not None
    assert first.step_ns >= first.llm_ns + first.tool_ns
    assert second.tool_ns is None
    assert run.num_steps == 2
    assert run.ttft_ns is not None
    assert run.total_duration_ns is not None
    assert 0 < run.ttft_ns <= run.total_duration_ns


async def die(house: House, run_id: str) -> None:
    """As a process leaves a run that dies in the middle of it."""
    task, _ = house.engine.worker.driving[run_id]
    task.cancel()
    await asyncio.wait({task})


async def test_a_run_that_was_taken_over_has_taken_as_long_as_its_caller_waited(database_url: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock, sweep=False) as house:
        conversation = await house.agent()
        house.model.script(Hang())
        run = await house.start(conversation)
        await house.model_called(1)
        await die(house, run.id)
        await clock.advance(60)
        async with opened(database_url, clock=clock, owner="other", sweep=False) as other:
            other.model.script(Say("took over"))
            await other.engine.open(alone=True)
            await other.records(run.id)
            after = await other.history.run(DEFAULT_ACTOR, run.id)
            assert after.total_duration_ns == pytest.approx(60 * 10**9)
            assert after.ttft_ns == pytest.approx(60 * 10**9)


async def test_a_first_token_that_was_seen_before_a_takeover_stays_the_first(database_url: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock, sweep=False) as house:
        conversation = await house.agent("look")
        house.model.script(Call("look"))
        house.model.script(Hang())
        run = await house.start(conversation)
        await house.model_called(2)
        await die(house, run.id)
        first = (await house.history.run(DEFAULT_ACTOR, run.id)).ttft_ns
        await clock.advance(60)
        async with opened(database_url, clock=clock, owner="other", sweep=False) as other:
            other.model.script(Say("took over"))
            await other.engine.open(alone=True)
            await other.records(run.id)
            assert first is not None
            assert (await other.history.run(DEFAULT_ACTOR, run.id)).ttft_ns == first


@pytest.mark.parametrize("ends", ["answered", "cancelled"])
async def test_time_in_the_queue_counts(database_url: str, ends: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        conversation = await house.agent()
        house.model.script(Hang())
        first = await house.start(conversation)
        queued = await house.start(conversation, when_busy="queue")
        await clock.advance(3)
        house.model.script(Say("at last"))
        await house.engine.cancel(queued if ends == "cancelled" else first)
        await house.records(queued.id)
        assert (await house.history.run(DEFAULT_ACTOR, queued.id)).total_duration_ns == pytest.approx(3 * 10**9)


# What fails, and how clients know it: the error's type and the stop reason.
FAILURES: dict[ModelErrorKind, tuple[str, str]] = {
    "llm_error": ("llm_error", "llm_api_error"),
    "llm_bad_request": ("llm_bad_request", "llm_api_error"),
    "llm_authentication": ("llm_authentication", "llm_api_error"),
    "llm_insufficient_credits": ("llm_insufficient_credits", "insufficient_credits"),
    "llm_rate_limit": ("llm_rate_limit", "llm_api_error"),
    "llm_overloaded": ("llm_error", "llm_api_error"),
    "llm_timeout": ("llm_timeout", "llm_api_error"),
    "llm_empty_response": ("llm_empty_response", "invalid_llm_response"),
}


def test_every_kind_of_failure_is_in_the_table() -> None:
    assert set(FAILURES) == set(get_args(ModelErrorKind)) - {"context_overflow"}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way["run_type"]))
@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("seen", ["", "half an answer"], ids=["at once", "mid-stream"])
async def test_a_models_failure_is_in_the_metadata_however_the_run_was_asked_for(
    house: House, kind: ModelErrorKind, way: dict[str, Any], seen: str
) -> None:
    conversation = await house.agent()
    house.model.script(*((Say(seen),) if seen else ()), FailMidStream(kind))
    run = await house.finished(conversation, **way)
    error_type, stop_reason = FAILURES[kind]
    assert (run.status, run.stop_reason) == ("failed", stop_reason)
    error = run.metadata["error"]
    assert (error["error_type"], error["run_id"], run.metadata["run_type"]) == (error_type, run.id, way["run_type"])
    records = await house.records(run.id)
    shown = [r for r in records if r["message_type"] == "error_message"]
    assert [{**record, "seq_id": None} for record in shown] == [error]
    assert [r["stop_reason"] for r in records if r["message_type"] == "stop_reason"] == [stop_reason]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way["run_type"]))
async def test_a_reply_that_was_cut_short_is_shown_and_the_metadata_says_why_the_run_failed(
    house: House, way: dict[str, Any]
) -> None:
    house.model.script(Say("half an ans"), Finish("length"))
    run = await house.finished(await house.agent(), **way)
    assert (run.status, run.stop_reason) == ("failed", "max_tokens_exceeded")
    assert run.metadata["error"]["error_type"] == "max_tokens_exceeded"
    assert "max_output_tokens" in run.metadata["error"]["message"]
    kinds = [record["message_type"] for record in await house.records(run.id) if "message_type" in record]
    assert "error_message" not in kinds
    assert "usage_statistics" in kinds


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way["run_type"]))
async def test_a_bug_of_ours_is_an_internal_error_in_the_metadata(house: House, way: dict[str, Any]) -> None:
    conversation = await house.agent()
    run = await broken(house, conversation, way)
    assert (run.status, run.stop_reason) == ("failed", "error")
    assert run.metadata["error"]["error_type"] == "internal_error"
    assert "the roof fell in" in run.metadata["error"]["detail"]
    house.model.script(Say("better"))
    assert (await house.finished(conversation)).status == "completed"


async def broken(house: House, conversation: str, way: dict[str, Any]) -> Any:
    """A run whose model call raises what nobody expected."""

    def stream(request: Any) -> Any:
        raise RuntimeError("the roof fell in")

    house.model.stream = stream  # type: ignore[method-assign]
    try:
        return await house.finished(conversation, **way)
    finally:
        del house.model.stream
