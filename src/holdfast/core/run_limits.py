"""Enforces a run's budget and context size: `apply` checks every decision of the loop that would call the model.

If the budget is spent, the run stops instead, with a return for every call. If the context is larger than its
threshold, it is compacted first. Pure, like the rest of the loop: the state holds what was spent and how large the
context is, and each decision adds only its own share.

Why compactions cannot loop: at most `MAX_COMPACTIONS` happen between two replies, and each removes more than the one
before. After a reply the context has to grow by a tenth of the window before it is compacted again, unless the vendor
rejects it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from holdfast.core import budget
from holdfast.core.budget import Price, Spent
from holdfast.core.conversation import token_estimate
from holdfast.core.conversation.messages import plain_text
from holdfast.core.model import Usage
from holdfast.core.state import (
    Call,
    CallModel,
    Compact,
    CompactionFailed,
    CompactionMethod,
    Decision,
    Failure,
    ModelFailed,
    State,
    Trigger,
)

COMPACTION_METHODS: tuple[CompactionMethod, ...] = get_args(CompactionMethod)
MAX_COMPACTIONS = len(COMPACTION_METHODS)
TIGHT_RETURN_SHARE = 0.02  # the share of the window that one tool return may take after the last kind of compaction
GROWTH_SHARE = 0.1  # the share of the window by which the context has to grow before it is compacted again


def apply(decision: Decision) -> Decision:
    """The decision with its new messages counted; if it would call the model, a stop or a compaction may replace that
    call."""
    decision = replace(decision, state=_with_new_tokens(decision))
    if decision.stop is not None or not any(isinstance(effect, CallModel) for effect in decision.effects):
        return decision
    if (spent := _spent(decision.state)) is not None:
        return replace(decision, effects=(), stop=spent.stop, spent=spent)
    if _is_too_large(decision.state):
        smaller = _compact(decision.state, "post_step_context_check")
        return replace(decision, state=smaller.state, effects=smaller.effects)
    return decision


def _with_new_tokens(decision: Decision) -> State:
    state = decision.state
    if not decision.messages:
        return state
    read = (draft.body for draft in decision.messages if draft.in_context)
    new = token_estimate.of_bodies(read, state.config.limits.return_chars)
    return replace(state, context_tokens=state.context_tokens + new)


def _spent(state: State) -> Spent | None:
    limits = state.config.limits
    return (
        budget.steps_spent(state.steps, state.config.max_steps)
        or budget.tokens_spent(state.spent, limits.budget.max_tokens)
        or budget.cost_spent(state.cost_usd, limits.budget.max_cost_usd)
        or budget.repeats_spent(state.rounds, limits.budget.max_repeats)
    )


def after_reply(state: State, usage: Usage, price: Price | None) -> State:
    """The state after a model reply: the vendor's count of the prompt replaces our estimate of the context's size."""
    state = paid(state, usage, price)
    counted = usage.prompt_tokens or state.context_tokens
    base = counted if state.compactions else state.compacted_to
    return replace(state, context_tokens=counted, compacted_to=base, compactions=0)


def count_repeats(state: State, calls: Sequence[Call]) -> State:
    """Count how often the same calls have given the same results."""
    this = tuple(
        (call.call.name, call.to_run.arguments, plain_text(call.result.content) if call.result else "")
        for call in calls
    )
    return replace(state, last_round=this, rounds=state.rounds + 1 if this == state.last_round else 1)


# ---- compaction -------------------------------------------------------------------------------------------------


def on_overflow(state: State, failed: ModelFailed) -> Decision:
    """The vendor rejected the context as too large: compact it, or give up after `MAX_COMPACTIONS`."""
    if state.compactions < MAX_COMPACTIONS:
        return _compact(state, "context_window_exceeded")
    return _context_too_large(state, failed.message)


def after_compaction(state: State, context_tokens: int, usage: Usage, price: Price | None) -> State:
    return replace(paid(state, usage, price), context_tokens=context_tokens, compacted_to=context_tokens)


def paid(state: State, usage: Usage, price: Price | None) -> State:
    """Add the usage of one model call, a reply or a summary, at the price of the model that answered. A call without a
    known price adds no cost and sets `unpriced`."""
    cost, unpriced = (0.0, bool(usage.total_tokens)) if price is None else (price.of(usage), False)
    return replace(
        state,
        spent=state.spent.plus(usage),
        cost_usd=state.cost_usd + cost,
        unpriced=state.unpriced or unpriced,
    )


def next_compaction(state: State, failed: CompactionFailed) -> Decision | None:
    """The next compaction attempt after a failed one, or None to call the model with the context as it is.

    None in two cases: the context is too large only by our own estimate, the vendor has not rejected it, and it could
    not be summarised; or nothing is left to drop, and tool returns are already sent shorter.
    """
    if failed.system_prompt:
        failure = Failure("context_window_overflow_in_system_prompt", failed.message)
        return Decision(state, stop="context_window_overflow_in_system_prompt", failure=failure)
    if failed.trigger == "context_window_exceeded":
        return _compact(state, failed.trigger) if state.compactions < MAX_COMPACTIONS else None
    return _compact(state, failed.trigger) if COMPACTION_METHODS[state.compactions] != "truncate" else None


def postpone_compaction(state: State) -> State:
    """Do not compact again until the context has grown by `GROWTH_SHARE` of the window."""
    return replace(state, compacted_to=state.context_tokens)


def _is_too_large(state: State) -> bool:
    limits = state.config.limits
    if limits.compact_past is None or state.context_tokens <= limits.compact_past:
        return False
    if state.compactions:  # it was just compacted and is still too large: only the second method may follow unasked
        return COMPACTION_METHODS[state.compactions : state.compactions + 1] == ("all",)
    grown = state.context_tokens - state.compacted_to
    return state.compacted_to == 0 or grown > (limits.window or 0) * GROWTH_SHARE


def _compact(state: State, trigger: Trigger) -> Decision:
    """Compact by the next method. The last one also sends less of each tool return from then on, since the many returns
    of one step may be what makes the context too large."""
    method = COMPACTION_METHODS[state.compactions]
    if method == "truncate":
        limits = replace(state.config.limits, return_share=TIGHT_RETURN_SHARE)
        state = replace(state, config=replace(state.config, limits=limits))
    return Decision(replace(state, compactions=state.compactions + 1), effects=(Compact(trigger, method),))


def _context_too_large(state: State, message: str) -> Decision:
    text = f"CONTEXT_WINDOW_EXCEEDED: The context is too large for the model, also after compaction: {message}"
    return Decision(state, stop="error", failure=Failure("context_window_exceeded", text))
