"""The limits of a run, looked at in one place: `hold` sees every decision before it is made known.

Whenever a decision would ask the model, the run may have spent its budget (then it rests instead, with every call
returned), or its context may have grown past the threshold (then it is compacted first). Pure, like the rest of the
loop: what was spent and how large the context is are facts in the state, and each decision weighs only what it adds.

Why compactions cannot loop: at most `MAX_COMPACTIONS` happen between two replies, each in a harsher way than the one
before, and after a reply the context has to grow by a tenth of the window before it is compacted again unasked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from holdfast.core import budget, tokens
from holdfast.core.budget import Price, Spent
from holdfast.core.messages import plain_text
from holdfast.core.model import Usage
from holdfast.core.state import (
    Call,
    CallModel,
    Compact,
    CompactionFailed,
    Decision,
    Failure,
    ModelFailed,
    State,
    Trigger,
    Way,
)

WAYS: tuple[Way, ...] = get_args(Way)
MAX_COMPACTIONS = len(WAYS)
SQUEEZED_SHARE = 0.02  # of the window, for one tool return when nothing else helps
GROWTH_SHARE = 0.1  # of the window: how much has to be new before it is compacted again


def hold(decision: Decision) -> Decision:
    """The decision with its context weighed, or what its limits make of it."""
    decision = replace(decision, state=_grown(decision))
    if decision.stop is not None or not any(isinstance(effect, CallModel) for effect in decision.effects):
        return decision
    if (spent := _spent(decision.state)) is not None:
        return replace(decision, effects=(), stop=spent.stop, spent=spent)
    if _is_too_large(decision.state):
        smaller = _compact(decision.state, "post_step_context_check")
        return replace(decision, state=smaller.state, effects=smaller.effects)
    return decision


def _grown(decision: Decision) -> State:
    state = decision.state
    if not decision.messages:
        return state
    new = tokens.of_bodies((draft.body for draft in decision.messages), state.loadout.terms.return_chars)
    return replace(state, context_tokens=state.context_tokens + new)


def _spent(state: State) -> Spent | None:
    terms = state.loadout.terms
    return (
        budget.steps_spent(state.steps, state.loadout.max_steps)
        or budget.tokens_spent(state.spent, terms.budget.max_tokens)
        or budget.cost_spent(state.cost_usd, terms.budget.max_cost_usd)
        or budget.repeats_spent(state.rounds, terms.budget.max_repeats)
    )


def replied(state: State, usage: Usage, price: Price | None) -> State:
    """The vendor has counted the prompt; from here on only what is new has to be estimated."""
    state = paid(state, usage, price)
    counted = usage.prompt_tokens or state.context_tokens
    base = counted if state.compactions else state.compacted_to
    return replace(state, context_tokens=counted, compacted_to=base, compactions=0)


def came_round(state: State, calls: Sequence[Call]) -> State:
    """Count how often the same calls have given the same results."""
    this = tuple(
        (call.call.name, call.to_run.arguments, plain_text(call.result.content) if call.result else "")
        for call in calls
    )
    return replace(state, last_round=this, rounds=state.rounds + 1 if this == state.last_round else 1)


# ---- compaction -------------------------------------------------------------------------------------------------


def overflowed(state: State, failed: ModelFailed) -> Decision:
    """The vendor says that the context is too large."""
    if state.compactions < MAX_COMPACTIONS:
        return _compact(state, "context_window_exceeded")
    return _given_up(state, failed.message)


def compacted(state: State, context_tokens: int, usage: Usage, price: Price | None) -> State:
    return replace(paid(state, usage, price), context_tokens=context_tokens, compacted_to=context_tokens)


def paid(state: State, usage: Usage, price: Price | None) -> State:
    """A call is over: a reply or a summary, each at the price of the model that answered. One whose price nobody knows
    has no cost."""
    cost, unpriced = (0.0, bool(usage.total_tokens)) if price is None else (price.of(usage), False)
    return replace(
        state,
        spent=state.spent.plus(usage),
        cost_usd=state.cost_usd + cost,
        unpriced=state.unpriced or unpriced,
    )


def compaction_failed(state: State, failed: CompactionFailed) -> Decision | None:
    """Try the next way. None: the model may be asked as it is. Either nobody has complained yet about a context that
    only looks too large to us, and it cannot be summarised; or there is nothing left to drop, and only the tool returns
    can be sent shorter."""
    if failed.system_prompt:
        failure = Failure("context_window_overflow_in_system_prompt", failed.message)
        return Decision(state, stop="context_window_overflow_in_system_prompt", failure=failure)
    if failed.trigger == "context_window_exceeded":
        return _compact(state, failed.trigger) if state.compactions < MAX_COMPACTIONS else None
    return _compact(state, failed.trigger) if WAYS[state.compactions] != "truncate" else None


def left_as_it_is(state: State) -> State:
    """The next try has to wait until there is more to gain."""
    return replace(state, compacted_to=state.context_tokens)


def _is_too_large(state: State) -> bool:
    terms = state.loadout.terms
    if terms.compact_past is None or state.context_tokens <= terms.compact_past:
        return False
    if state.compactions:
        return WAYS[state.compactions : state.compactions + 1] == ("all",)
    grown = state.context_tokens - state.compacted_to
    return state.compacted_to == 0 or grown > (terms.window or 0) * GROWTH_SHARE


def _compact(state: State, trigger: Trigger) -> Decision:
    """The last way also sends less of each tool return from here on: many of one step may be what is too large."""
    way = WAYS[state.compactions]
    if way == "truncate":
        terms = replace(state.loadout.terms, return_share=SQUEEZED_SHARE)
        state = replace(state, loadout=replace(state.loadout, terms=terms))
    return Decision(replace(state, compactions=state.compactions + 1), effects=(Compact(trigger, way),))


def _given_up(state: State, message: str) -> Decision:
    text = f"CONTEXT_WINDOW_EXCEEDED: The context is too large for the model, also after compaction: {message}"
    return Decision(state, stop="error", failure=Failure("context_window_exceeded", text))
