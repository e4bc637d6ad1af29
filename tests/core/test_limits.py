"""Tests of run limits: budgets stop a run between steps, and compactions of a large context end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.turns import call, replied, result, said, state
from holdfast.core.budget import Budget, Price, Spent, seconds_spent
from holdfast.core.conversation.messages import AssistantBody, Text, ToolReturnsBody
from holdfast.core.loop import decide
from holdfast.core.model import Reply, Usage
from holdfast.core.run_limits import MAX_COMPACTIONS
from holdfast.core.state import (
    BudgetSpent,
    CallModel,
    Compact,
    Compacted,
    CompactionFailed,
    Decision,
    ModelFailed,
    ModelReplied,
    RunLimits,
    State,
    ToolSettled,
)

SOME = Usage(10, 10)


def under(before: State, **limits: Any) -> State:
    return replace(before, config=replace(before.config, limits=RunLimits(**limits)))


def step(
    before: State, *, usage: Usage = SOME, text: str = "done", number: int = 1, price: Price | None = None
) -> Decision:
    """A reply with one call, and its result."""
    reply = Reply((), (call("look", f"c{number}"),), "tool_calls", usage)
    asked = ModelReplied(reply, f"step-{number}", "m", "r", price)
    going = decide(before, asked).state
    return decide(going, ToolSettled(f"c{number}", result(f"c{number}", text)))


def asks(decision: Decision) -> bool:
    return any(isinstance(effect, CallModel) for effect in decision.effects)


# ---- budgets


def test_a_run_out_of_steps_rests_with_its_results_and_says_which_limit_it_was() -> None:
    decision = step(state("look", max_steps=1))
    assert decision.stop == "max_steps"
    assert isinstance(decision.messages[0].body, ToolReturnsBody)
    assert decision.spent is not None
    assert (decision.spent.kind, decision.spent.limit, decision.spent.spent) == ("steps", 1, 1)


def test_tokens_add_up_over_steps_until_the_budget_is_spent() -> None:
    now = under(state("look"), budget=Budget(max_tokens=50))
    first = step(now, usage=Usage(20, 10))
    assert asks(first)
    second = step(first.state, usage=Usage(20, 10), number=2)
    assert (second.stop, second.spent and second.spent.spent) == ("max_tokens_exceeded", 60)


def test_what_a_summary_costs_counts_too() -> None:
    now = under(state("look"), budget=Budget(max_tokens=50))
    decision = decide(now, Compacted(100, Usage(60, 10)))
    assert decision.stop == "max_tokens_exceeded"


def test_cost_is_counted_by_the_price_of_each_kind_of_token() -> None:
    price = Price(prompt=3, completion=15, cached=0.3, cache_write=3.75)
    usage = Usage(1_000_000, 100_000, cached_input_tokens=500_000, cache_write_tokens=200_000)
    assert price.of(usage) == pytest.approx(0.3 * 3 + 0.5 * 0.3 + 0.2 * 3.75 + 0.1 * 15)


def test_a_cost_budget_stops_a_model_with_a_known_price_and_no_other() -> None:
    expensive = Usage(1_000_000, 0)
    now = under(state("look"), budget=Budget(max_cost_usd=1))
    known = step(now, usage=expensive, price=Price(2, 8))
    assert (known.stop, known.state.cost_usd, known.state.unpriced) == ("max_tokens_exceeded", 2, False)
    unknown = step(now, usage=expensive)
    assert asks(unknown)
    assert unknown.state.unpriced


def test_each_model_is_counted_at_its_own_price() -> None:
    now = under(state("look"), budget=Budget(max_cost_usd=3))
    dear = step(now, usage=Usage(1_000_000, 0), price=Price(2, 8))
    cheap = decide(dear.state, Compacted(100, Usage(1_000_000, 0), Price(0.5, 1)))
    assert asks(cheap)
    assert cheap.state.cost_usd == 2.5


def test_the_same_call_with_the_same_result_again_and_again_is_no_progress() -> None:
    now = under(state("look"), budget=Budget(max_repeats=3))
    for number in range(2):
        decision = step(now, number=number)
        assert asks(decision)
        now = decision.state
    assert (ended := step(now, number=3)).stop == "max_steps"
    assert ended.spent is not None
    assert ended.spent.kind == "repeats"


def test_another_result_in_between_is_progress() -> None:
    now = under(state("look"), budget=Budget(max_repeats=2))
    for number, text in enumerate(("a", "b", "a", "b", "a")):
        decision = step(now, text=text, number=number)
        assert asks(decision)
        now = decision.state


def test_a_run_whose_time_is_over_keeps_what_was_seen_and_closes_its_calls() -> None:
    running = decide(state("look"), replied(call("look", "c1"))).state
    decision = decide(running, BudgetSpent(seconds_spent(5)))
    assert (decision.stop, decision.calls[0].status) == ("max_steps", "cancelled")
    assert isinstance(decision.messages[0].body, ToolReturnsBody)
    talking = decide(state(), BudgetSpent(seconds_spent(5), (Text("half a"),), "step-1", "message-1"))
    assert talking.messages[0].body == AssistantBody((Text("half a"),), interrupted=True)


def test_a_request_may_set_other_limits_than_its_agent_but_no_more_than_the_server_allows() -> None:
    asked, agents, servers = Budget(max_tokens=500), Budget(max_tokens=100, max_seconds=9), Budget(max_tokens=300)
    assert asked.or_else(agents).at_most(servers) == Budget(max_tokens=300, max_seconds=9)


def test_every_budget_ends_with_a_stop_reason_of_the_contract() -> None:
    stops = {Spent(kind, 1, 1, "").stop for kind in ("steps", "tokens", "cost", "seconds", "repeats")}
    assert stops == {"max_steps", "max_tokens_exceeded"}


# ---- the size of the context


def test_the_size_is_what_the_vendor_counted_and_an_estimate_of_what_is_new() -> None:
    decision = step(state("look"), usage=Usage(700, 40), text="x" * 100)
    assert 700 < decision.state.context_tokens < 800
    more = decide(decide(decision.state, replied(text="ok")).state, said("word " * 400))
    assert 300 < more.state.context_tokens < 700, "the second reply reported one token, and 400 words are new"


def test_a_vendor_that_counts_nothing_leaves_the_estimate() -> None:
    now = replace(state(), context_tokens=500)
    silent = ModelReplied(Reply((Text("ok " * 100),), (), "stop", Usage()), "s", "m", "r")
    assert 550 < decide(now, silent).state.context_tokens < 700


def test_a_context_past_the_threshold_is_compacted_before_the_model_is_asked() -> None:
    now = replace(under(state(), window=1_000, compact_past=900), context_tokens=895)
    assert decide(now, said("a few more words")).effects == (Compact("post_step_context_check", "asked"),)
    assert asks(decide(replace(now, context_tokens=100), said("a few more words")))


def test_an_unknown_context_window_is_never_guessed() -> None:
    assert asks(decide(replace(state(), context_tokens=10_000_000), said()))


def test_a_compaction_that_was_not_enough_is_followed_by_a_harsher_one_and_then_the_model_is_asked() -> None:
    now = replace(under(state(), window=1_000, compact_past=900), context_tokens=950)
    first = decide(now, said())
    second = decide(first.state, Compacted(940))
    assert second.effects == (Compact("post_step_context_check", "all"),)
    assert asks(decide(second.state, Compacted(930)))


def test_a_context_that_cannot_get_smaller_is_not_compacted_with_every_step() -> None:
    now = replace(under(state("look"), window=1_000, compact_past=900), context_tokens=950)
    now = decide(decide(decide(now, said()).state, Compacted(940)).state, Compacted(930)).state
    for number in range(4):
        decision = step(now, usage=Usage(930 + number, 5), number=number)
        assert asks(decision), "nothing much is new since the last compaction"
        now = decision.state
    assert step(now, usage=Usage(1_090, 5), number=9).effects == (Compact("post_step_context_check", "asked"),)


def test_where_no_summary_can_be_made_nothing_is_dropped_unless_the_vendor_complains() -> None:
    now = replace(under(state(), window=1_000, compact_past=900), context_tokens=950)
    first = decide(now, said())
    second = decide(first.state, CompactionFailed("post_step_context_check", "the summariser is down"))
    assert second.effects == (Compact("post_step_context_check", "all"),)
    third = decide(second.state, CompactionFailed("post_step_context_check", "still down"))
    assert asks(third)
    complaint = decide(third.state, ModelFailed("context_overflow", "too long"))
    assert complaint.effects == (Compact("context_window_exceeded", "truncate"),)


def test_an_overflow_is_compacted_in_ever_harsher_ways_and_not_for_ever() -> None:
    now = state()
    ways = []
    for _ in range(MAX_COMPACTIONS):
        decision = decide(now, ModelFailed("context_overflow", "too long"))
        (effect,) = decision.effects
        assert isinstance(effect, Compact)
        ways.append(effect.method)
        now = decide(decision.state, Compacted(10)).state
    assert ways == ["asked", "all", "truncate"]
    end = decide(now, ModelFailed("context_overflow", "too long"))
    assert end.stop == "error"
    assert end.failure is not None
    assert end.failure.error_type == "context_window_exceeded"


def test_after_a_reply_there_is_room_for_compactions_again() -> None:
    now = decide(state("look"), ModelFailed("context_overflow", "too long")).state
    now = step(decide(now, Compacted(10)).state).state
    assert decide(now, ModelFailed("context_overflow", "too long")).effects == (Compact("context_window_exceeded"),)


def test_a_system_prompt_that_alone_is_too_long_has_a_stop_reason_of_its_own() -> None:
    now = decide(state(), ModelFailed("context_overflow", "too long")).state
    decision = decide(now, CompactionFailed("context_window_exceeded", "block persona …", system_prompt=True))
    assert decision.stop == "context_window_overflow_in_system_prompt"
    assert decision.failure is not None
    assert decision.failure.message == "block persona …"
