"""Compaction during runs: before the window is full, when the vendor rejects it, in every mode, never in loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine.house import House, opened
from holdfast.core.conversation.messages import (
    AssistantBody,
    Message,
    SummaryBody,
    SystemBody,
    ToolReturnsBody,
    UserBody,
    plain_text,
)
from holdfast.core.errors import Invalid, ModelError
from holdfast.core.model import ModelRequest, Usage
from holdfast.core.records import Run, Step
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import MessageScope
from holdfast.ports.toolbox import ToolJob
from holdfast.records.blocks import NewBlock
from holdfast.storage.records.message_search import SqlMessageSearch
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.testing.script import Call, Count, Fail, Hang, Say

LONG = "The tide comes in and the tide goes out. " * 60  # about 600 tokens


async def talk(house: House, conversation: str, turns: int, text: str = LONG) -> None:
    for number in range(turns):
        house.model.script(Say(f"answer {number}"), Count(Usage(100, 2)))
        await house.finished(conversation, f"question {number}: {text}")


async def context_of(house: House, conversation: str) -> tuple[Message, ...]:
    snapshot = await house.deps.store.snapshot(conversation)
    assert snapshot.context is not None
    return snapshot.context


async def steps_of(house: House, run: Run) -> Sequence[Step]:
    return await house.deps.store.run_steps(run.id)


def kinds(messages: Any) -> list[str]:
    return [type(message.body).__name__.removesuffix("Body") for message in messages]


def text_of(message: Message) -> str:
    assert isinstance(message.body, UserBody)
    return plain_text(message.body.parts)


def is_summary_request(request: ModelRequest) -> bool:
    return not request.tools and isinstance(request.messages[0].body, SystemBody) and len(request.messages) == 2


async def test_a_context_past_the_threshold_is_compacted_before_the_model_is_asked(house: House) -> None:
    conversation = await house.agent(context_window_limit=4_000)
    await talk(house, conversation, 3)
    house.model.script(Say("nearly full"), Count(Usage(3_500, 2)))
    await house.finished(conversation, "question 3")
    calls = len(house.model.requests)
    house.model.script(Say("they talked about the tide"))
    house.model.script(Say("after"), Count(Usage(900, 2)))
    run = await house.finished(conversation, LONG, include_compaction=True)
    assert run.stop_reason == "end_turn"
    assert is_summary_request(house.model.requests[calls])
    sent = house.model.requests[calls + 1].messages
    assert kinds(sent)[:2] == ["System", "Summary"]
    assert isinstance(sent[1].body, SummaryBody)
    assert "they talked about the tide" in sent[1].body.text
    assert text_of(sent[-1]) == LONG

    records = await house.records(run.id)
    event = next(r for r in records if r["message_type"] == "event_message")
    assert event["event_type"] == "compaction"
    assert event["event_data"]["trigger"] == "post_step_context_check"
    assert event["event_data"]["context_window"] == 4_000
    assert event["event_data"]["context_token_estimate"] > 3_600
    summary = next(r for r in records if r["message_type"] == "summary_message")
    stats = summary["compaction_stats"]
    assert stats["trigger"] == "post_step_context_check"
    assert stats["context_tokens_before"] == event["event_data"]["context_token_estimate"]
    assert stats["context_tokens_after"] < stats["context_tokens_before"]
    assert stats["messages_count_after"] < stats["messages_count_before"]
    assert summary["seq_id"] > event["seq_id"]


async def test_compactions_are_shown_only_to_clients_that_asked_for_them(house: House) -> None:
    conversation = await house.agent()
    await talk(house, conversation, 3)
    house.model.script(Fail.of("context_overflow"))
    house.model.script(Say("a summary"))
    house.model.script(Say("after"))
    run = await house.finished(conversation)
    shown = [record["message_type"] for record in await house.records(run.id)]
    assert shown == ["ping", "assistant_message", "stop_reason", "usage_statistics"]


async def test_the_size_of_a_context_survives_its_process(database_url: str) -> None:
    async with opened(database_url) as house:
        conversation = await house.agent(context_window_limit=4_000)
        await talk(house, conversation, 3)
        house.model.script(Say("nearly full"), Count(Usage(3_590, 20)))
        await house.finished(conversation, "question 3")
    async with opened(database_url) as house:
        house.model.script(Say("a summary"))
        house.model.script(Say("after"))
        await house.finished(conversation, "one more question")
        assert is_summary_request(house.model.requests[0])


async def test_a_model_that_always_overflows_is_asked_a_bounded_number_of_times(house: House) -> None:
    conversation = await house.agent()
    await talk(house, conversation, 6)
    before = len(house.model.requests)
    for _ in range(50):
        house.model.script(Fail.of("context_overflow"))
    run = await house.finished(conversation, "and now")
    assert (run.status, run.stop_reason) == ("failed", "error")
    assert run.metadata["error"]["error_type"] == "context_window_exceeded"
    assert len(house.model.requests) - before <= 10
    house.model._replies.clear()
    house.model.script(Say("better"))
    assert (await house.finished(conversation, "still there?")).stop_reason == "end_turn"
    kept = await context_of(house, conversation)
    assert [plain_text(m.body.parts) for m in kept if isinstance(m.body, UserBody)] == ["and now", "still there?"]


async def test_a_summariser_that_is_down_costs_the_summary_but_not_the_answer(house: House) -> None:
    conversation = await house.agent()
    await talk(house, conversation, 4)
    house.model.script(Fail.of("context_overflow"))
    house.model.script(Fail.of("llm_authentication"))
    house.model.script(Fail.of("llm_authentication"))
    house.model.script(Say("I remember little"))
    run = await house.finished(conversation, "what now?")
    assert run.stop_reason == "end_turn"
    kept = await context_of(house, conversation)
    assert kinds(kept) == ["System", "Summary", "User", "Assistant"]
    assert isinstance(kept[1].body, SummaryBody)
    assert "could not be summarised" in kept[1].body.text


async def test_a_compactions_call_is_a_step_of_its_own_with_what_it_cost(house: House) -> None:
    conversation = await house.agent()
    await talk(house, conversation, 3)
    house.model.script(Fail.of("context_overflow"))
    house.model.script(Say("a summary"), Count(Usage(500, 50)))
    house.model.script(Say("after"), Count(Usage(100, 10)))
    run = await house.finished(conversation, "go on")
    steps = await steps_of(house, run)
    assert [(s.call_type, s.status) for s in steps] == [
        ("agent_step", "failed"),
        ("summarization", "success"),
        ("agent_step", "success"),
    ]
    assert steps[1].usage == Usage(500, 50)
    assert run.num_steps == 1
    summary = next(m for m in await context_of(house, conversation) if isinstance(m.body, SummaryBody))
    assert summary.step_id == steps[1].id
    (usage,) = [r for r in await house.records(run.id) if r["message_type"] == "usage_statistics"]
    assert (usage["total_tokens"], usage["step_count"]) == (660, 1)


async def test_the_cost_of_a_compaction_survives_a_takeover(database_url: str) -> None:
    async with opened(database_url) as house:
        conversation = await house.agent()
        await talk(house, conversation, 3)
        house.model.script(Fail.of("context_overflow"))
        house.model.script(Say("a summary"), Count(Usage(5_000, 50)))
        house.model.script(Hang())
        run = await house.start(conversation, "go on", budget={"max_tokens": 5_060})
        await house.model_called(6)
    async with opened(database_url, sweep=False) as house:
        house.model.script(Say("after"), Count(Usage(100, 10)))  # before the engine takes over the run
        await house.engine.open(alone=True)
        (usage,) = [r for r in await house.records(run.id) if r["message_type"] == "usage_statistics"]
        assert usage["total_tokens"] == 5_160
        assert usage["step_count"] == 1


async def test_a_budget_counts_the_tokens_of_a_summary_that_came_to_nothing(house: House) -> None:
    conversation = await house.agent()
    await talk(house, conversation, 3)
    house.model.script(Fail.of("context_overflow"))
    house.model.script(Say("  "), Count(Usage(500, 50)))
    house.model.script(Say("a summary"), Count(Usage(500, 50)))
    run = await house.finished(conversation, "go on", budget={"max_tokens": 1_000})
    assert run.stop_reason == "max_tokens_exceeded"
    assert run.metadata["budget"]["spent"] == 1_100


async def test_a_summariser_that_cannot_read_so_much_is_given_the_newer_half(house: House) -> None:
    conversation = await house.agent()
    await talk(house, conversation, 4, "x" * 100_000)
    house.model.script(Fail.of("context_overflow"))
    house.model.script(Say("the newer half"))
    done = await house.maintenance.compact(conversation, {"mode": "all"})
    assert done.summary == "the newer half"
    first, second = (text_of(r.messages[-1]) for r in house.model.requests[-2:])
    assert len(second) < len(first)
    assert first.endswith(second[-1_000:])


@pytest.mark.parametrize("mode", ["all", "sliding_window", "self_compact_all", "self_compact_sliding_window"])
async def test_every_mode_makes_the_context_smaller_and_the_conversation_goes_on(house: House, mode: str) -> None:
    conversation = await house.agent("look", compaction_settings={"mode": mode})
    for number in range(4):
        house.model.script(Call("look", id=f"a{number}"), Call("look", id=f"b{number}"))
        house.model.script(Say(f"answer {number}"))
        await house.finished(conversation, f"question {number}: {LONG}")
    house.model.script(Say("what I did so far"))
    done = await house.maintenance.compact(conversation, None)
    assert (done.summary, done.count_before) == ("what I did so far", 17)
    assert done.count_after < done.count_before
    kept = await context_of(house, conversation)
    assert len(kept) == done.count_after
    expected = ["System", "Summary", "User", "Assistant", "ToolReturns", "Assistant"]
    if mode.endswith("all"):
        assert kinds(kept) == expected
    else:
        assert kinds(kept)[-4:] == expected[-4:]
    asked = house.model.requests[-1]
    if mode.startswith("self"):
        assert [tool.name for tool in asked.tools] == ["look"]
        assert asked.tool_choice == "none"
        assert isinstance(asked.messages[3].body, ToolReturnsBody)
        assert asked.messages[0].id == kept[0].id
    else:
        assert is_summary_request(asked)
    house.model.script(Say("on we go"))
    assert (await house.finished(conversation, "next")).stop_reason == "end_turn"
    assert [m.id for m in house.model.requests[-1].messages[:-1]] == [m.id for m in kept]


async def test_settings_choose_the_model_the_prompt_and_how_long_a_summary_may_be(house: House) -> None:
    conversation = await house.agent(compaction_settings={"mode": "all", "prompt": "Be brief.", "clip_chars": 20})
    await talk(house, conversation, 2)
    house.model.script(Say("0123456789" * 5))
    settings = {"prompt_acknowledgement": True, "model_settings": {"temperature": 0.1}}
    done = await house.maintenance.compact(conversation, settings)
    assert done.summary == "01234567890123456789... [truncated 30 chars]"
    asked = house.model.requests[-1]
    assert asked.messages[0].body == SystemBody("Be brief.")
    assert isinstance(asked.messages[-2].body, AssistantBody)
    assert asked.settings.temperature == 0.1


async def test_a_request_may_bring_settings_of_its_own(house: House) -> None:
    conversation = await house.agent()
    await talk(house, conversation, 3)
    house.model.script(Fail.of("context_overflow"))
    house.model.script(Say("mine"))
    house.model.script(Say("after"))
    await house.finished(conversation, "go on", compaction={"mode": "all", "prompt": "Only for this."})
    assert house.model.requests[-2].messages[0].body == SystemBody("Only for this.")


async def test_a_self_compacting_agent_that_overflows_itself_is_summarised_by_others(house: House) -> None:
    conversation = await house.agent(compaction_settings={"mode": "self_compact_all"})
    await talk(house, conversation, 3)
    house.model.script(Fail.of("context_overflow"))
    house.model.script(Fail.of("context_overflow"))
    house.model.script(Say("a summary by transcript"))
    house.model.script(Say("after"))
    assert (await house.finished(conversation, "go on")).stop_reason == "end_turn"
    assert is_summary_request(house.model.requests[-2])


async def test_what_was_compacted_away_stays_listed_and_searchable(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Say("noted"))
    await house.finished(conversation, "the password is swordfish")
    await talk(house, conversation, 2)
    house.model.script(Say("they talked"))
    await house.maintenance.compact(conversation, {"mode": "all"})
    assert "swordfish" not in str(await context_of(house, conversation))
    listed = (
        await house.history.messages(
            DEFAULT_ACTOR, MessageScope(conversation_id=conversation), Page(limit=100, order="asc")
        )
    ).messages
    assert "swordfish" in str(listed[1].body)
    hits = await SqlMessageSearch(house.database).search_messages(
        org_id=DEFAULT_ACTOR.org_id,
        agent_id=listed[1].agent_id,
        query="swordfish",
        roles=("user",),
        limit=5,
        start=None,
        end=None,
        conversation_id=conversation,
    )
    assert [hit.message_id for hit in hits] == [listed[1].id]


async def test_a_cancel_closes_the_summarisers_connection_and_leaves_the_context_alone(house: House) -> None:
    conversation = await house.agent()
    await talk(house, conversation, 3)
    house.model.script(Fail.of("context_overflow"))
    house.model.script(Hang())
    run = await house.start(conversation)
    await house.model_called(5)
    assert not house.model.closed_early.is_set()
    await house.engine.cancel(run)
    assert house.model.closed_early.is_set()
    assert "Summary" not in kinds(await context_of(house, conversation))
    last = (await steps_of(house, run))[-1]
    assert (last.call_type, last.status, last.stop_reason) == ("summarization", "cancelled", "cancelled")


async def test_a_system_prompt_that_alone_is_too_long_says_which_block_to_shorten(house: House) -> None:
    conversation = await house.agent(
        context_window_limit=2_000,
        memory_blocks=[NewBlock(label="human", value="short"), NewBlock(label="persona", value=LONG * 8)],
    )
    run = await house.finished(conversation)
    assert (run.status, run.stop_reason) == ("failed", "context_window_overflow_in_system_prompt")
    error = run.metadata["error"]
    assert error["error_type"] == "context_window_overflow_in_system_prompt"
    assert "memory block 'persona'" in error["message"]
    assert "2000" in error["message"]
    assert house.model.requests == []


async def test_the_vendors_complaint_about_the_system_prompt_is_recognised_too(database_url: str) -> None:
    async with opened(database_url, compact_at=100.0) as house:
        conversation = await house.agent(system=LONG * 8, context_window_limit=2_000)
        house.model.script(Fail.of("context_overflow"))
        run = await house.finished(conversation)
        assert run.stop_reason == "context_window_overflow_in_system_prompt"
        assert "the agent's own system prompt" in run.metadata["error"]["message"]


async def test_compacting_what_cannot_get_smaller_is_refused_and_changes_nothing(house: House) -> None:
    conversation = await house.agent()
    with pytest.raises(Invalid, match="cannot be made smaller"):
        await house.maintenance.compact(conversation, None)
    await talk(house, conversation, 3)
    before = kinds(await context_of(house, conversation))
    house.model.script(Fail.of("llm_rate_limit"))
    house.model.script(Fail.of("llm_rate_limit"))
    with pytest.raises(ModelError) as raised:
        await house.maintenance.compact(conversation, None)
    assert raised.value.kind == "llm_rate_limit"
    assert kinds(await context_of(house, conversation)) == before


async def test_one_step_whose_returns_are_too_large_together_is_sent_with_less_of_each(house: House) -> None:
    conversation = await house.agent("read", context_window_limit=20_000)

    async def read(job: ToolJob) -> str:
        return LONG * 20

    house.toolbox.does["read"] = read
    house.model.script(*(Call("read", id=f"c{number}") for number in range(8)))
    house.model.script(Say("the user wants it read"))
    house.model.script(Fail.of("context_overflow"))
    house.model.script(Say("read"))
    run = await house.finished(conversation, "read everything")
    assert run.stop_reason == "end_turn"
    first, last = house.model.requests[-2:]
    assert (first.tool_return_char_limit, last.tool_return_char_limit) == (16_000, 5_000)
    assert kinds(last.messages) == ["System", "Summary", "Assistant", "ToolReturns"]
