"""The agent loop, as a pure function: given where a run stands and what happened, what follows?

    decide(state, happened) -> Decision

It reads no clock, makes no ids and does no I/O. The driver (`engine.driver`) performs the effects and feeds their
results back in, until a decision has a `stop`. Every request, whether answered at once, streamed or left in the
background, is this one loop.

How a turn goes: the user speaks, the model replies. Without tool calls the turn ends. With them, those that need a
human end the turn with `requires_approval` and wait, together with the allowed calls of the same step; otherwise
they run, those that allow it at once and the rest in order. When the last is settled their results become one
message, and the model is asked again.

Invariant, property-tested over random histories: after every decision that stops, each tool call in the
context has exactly one return, or the run waits for a human and exactly the waiting calls have none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from holdfast.core import answers, limits, tooling
from holdfast.core.errors import Invalid, PendingApproval
from holdfast.core.lifecycle import StopReason
from holdfast.core.messages import (
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Draft,
    Text,
    ToolCall,
    ToolResult,
    UserBody,
)
from holdfast.core.rules import still_required
from holdfast.core.state import (
    BudgetSpent,
    CancelAsked,
    Compacted,
    CompactionFailed,
    Crashed,
    Decision,
    DecisionsGiven,
    Failure,
    Happened,
    ModelFailed,
    ModelReplied,
    Recovered,
    Ruling,
    State,
    ToolSettled,
    UserSpoke,
)

NUDGE = "[This is an automated system message hidden from the user] "
KEEP_ALIVE = (
    "<system-alert>Automated keep-alive ping. Ignore this message and continue from where you stopped.</system-alert>"
)
INTERRUPTED = "The user cancelled the request, so the tool call was denied."


def decide(state: State, happened: Happened) -> Decision:
    """What follows, within the run's limits: they are looked at wherever the model would be asked."""
    return limits.hold(_follows(state, happened))


def _follows(state: State, happened: Happened) -> Decision:
    match happened:
        case UserSpoke(messages=messages):
            return _user_spoke(state, messages)
        case DecisionsGiven():
            return _decisions_given(state, happened)
        case ModelReplied():
            return _model_replied(state, happened)
        case ModelFailed():
            return _model_failed(state, happened)
        case ToolSettled(call_id=call_id, result=result):
            return _tool_settled(state, call_id, result)
        case Compacted(context_tokens=tokens, usage=usage, price=price):
            return tooling.ask_model(limits.compacted(state, tokens, usage, price))
        case CompactionFailed(usage=usage, price=price):
            state = limits.paid(state, usage, price)
            next_try = limits.compaction_failed(state, happened)
            return next_try or tooling.ask_model(limits.left_as_it_is(state))
        case CancelAsked():
            return _cancelled(state, happened)
        case Recovered(request_id=request_id):
            return _recovered(state, request_id)
        case BudgetSpent():
            return _out_of_time(state, happened)
        case Crashed(message=message):
            return _crashed(state, message)
        case _:
            assert_never(happened)


# ---- the start of a turn ------------------------------------------------------------------------------------


def _user_spoke(state: State, messages: tuple[Draft, ...]) -> Decision:
    if waiting := state.waiting:
        raise PendingApproval(waiting[0].request_id or "")
    return tooling.ask_model(state, messages)


def _decisions_given(state: State, given: DecisionsGiven) -> Decision:
    """Settle what was answered, start what was approved; an answer sent twice only makes the loop go on."""
    if not state.waiting and not given.partial and answers.is_repeat(state, given.answers):
        again = given.follow_ups or (Draft(UserBody((Text(KEEP_ALIVE),))),)
        return tooling.ask_model(state, again)
    answered = answers.apply(state, given)
    response = Draft(ApprovalResponseBody(answered.answers), step_id=answered.step_id)
    changed = tuple(after for was, after in zip(state.calls, answered.calls, strict=True) if was is not after)
    after = replace(state, calls=answered.calls, follow_ups=(*state.follow_ups, *given.follow_ups))
    if after.waiting:
        if given.follow_ups:
            raise Invalid("Messages can only be sent along with the last answer; others are still awaited.")
        return Decision(after, (response,), changed, stop="requires_approval", rulings=answered.rulings)
    return replace(tooling.go_on(after, before=(response,), touched=changed), rulings=answered.rulings)


# ---- the model ----------------------------------------------------------------------------------------------


def _model_replied(state: State, happened: ModelReplied) -> Decision:
    reply = happened.reply
    state = limits.replied(replace(state, steps=state.steps + 1), reply.usage, happened.price)
    asked = reply.calls if state.loadout.parallel_calls else reply.calls[:1]
    if not asked:
        return _text_only(state, happened)
    calls, rulings = tooling.through_the_gate(state.loadout, asked, happened)
    state = replace(state, calls=calls)
    gated = tuple(call.call for call in calls if call.waiting)
    free = tuple(call.call for call in calls if not call.waiting)
    if not gated:
        whole = Draft(AssistantBody(reply.parts, asked), happened.message_id, happened.step_id)
        return replace(tooling.go_on(state, before=(whole,), touched=calls), rulings=rulings)
    ask = ApprovalRequestBody(gated, () if free else reply.parts)
    request = Draft(ask, happened.request_id, happened.step_id)
    said = Draft(AssistantBody(reply.parts, free), happened.message_id, happened.step_id)
    return Decision(state, (said, request) if free else (request,), calls, stop="requires_approval", rulings=rulings)


def _text_only(state: State, happened: ModelReplied) -> Decision:
    """No call: the turn ends, unless a tool is required before it may."""
    reply = happened.reply
    said: tuple[Draft, ...] = ()
    if reply.parts:
        said = (Draft(AssistantBody(reply.parts), happened.message_id, happened.step_id),)
    required = still_required(state.loadout.rules, tuple(state.loadout.tools), state.called, state.last_result)
    if required and state.steps < state.loadout.max_steps:
        text = f"{NUDGE}ToolRuleViolated: You must call {', '.join(required)} at least once to exit the loop."
        nudge = Draft(UserBody((Text(text),)), step_id=happened.step_id)
        return tooling.ask_model(state, (*said, nudge))
    return Decision(state, said, stop="max_tokens_exceeded" if reply.finish == "length" else "end_turn")


def _model_failed(state: State, failed: ModelFailed) -> Decision:
    if failed.kind == "context_overflow":
        return limits.overflowed(state, failed)
    failure = Failure(failed.kind, failed.message, failed.detail)
    match failed.kind:
        case "llm_empty_response":
            return Decision(state, stop="invalid_llm_response", failure=failure)
        case "llm_insufficient_credits":
            return Decision(state, stop="insufficient_credits", failure=failure)
        case _:
            return Decision(state, stop="llm_api_error", failure=failure)


# ---- tools --------------------------------------------------------------------------------------------------


def _tool_settled(state: State, call_id: str, result: ToolResult) -> Decision:
    """A late result of a call that is no longer open changes nothing."""
    for call in state.calls:
        if call.call.id == call_id and call.status == "started":
            told = tooling.telling_of_the_edit(call, result)
            settled = replace(call, status="settled", result=told, executed=True)
            return tooling.go_on(state.with_call(settled), touched=(settled,))
    return Decision(state)


# ---- interruptions --------------------------------------------------------------------------------------------


def _cancelled(state: State, asked: CancelAsked) -> Decision:
    """Keep what was seen, settle every open call, and rest. Idempotent: with nothing open it only stops. A rollback
    takes the turn out of the context; what was said and done is in the history all the same."""
    seen: tuple[Draft, ...] = ()
    if asked.partial:
        seen = (Draft(AssistantBody(asked.partial, interrupted=True), asked.message_id, asked.step_id),)
    closed = _closed(state, "cancelled", INTERRUPTED, before=seen)
    if asked.reason is not None:
        closed = replace(closed, rulings=tuple(replace(ruling, reason=asked.reason) for ruling in closed.rulings))
    return replace(closed, rollback=asked.rollback)


def _out_of_time(state: State, over: BudgetSpent) -> Decision:
    """Like a cancel, but nobody asked: keep what was seen, close what is open, and rest."""
    seen: tuple[Draft, ...] = ()
    if over.partial:
        seen = (Draft(AssistantBody(over.partial, interrupted=True), over.message_id, over.step_id),)
    return replace(_closed(state, over.spent.stop, over.spent.message, before=seen), spent=over.spent)


def _crashed(state: State, message: str) -> Decision:
    """Our own bug must not brick the agent: close what is open, say what happened, and rest. What was started may have
    taken effect."""
    lost = (replace(call, status="unknown") if call.status == "started" else call for call in state.calls)
    state = replace(state, calls=tuple(lost))
    closed = _closed(state, "error", "The server failed while working on this request.")
    return replace(closed, failure=Failure("internal_error", message))


def _closed(state: State, stop: StopReason, reason: str, before: tuple[Draft, ...] = ()) -> Decision:
    """Every open call gets its return, what the user sent along is kept, and the run rests."""
    drafts = list(before)
    if waiting := state.waiting:
        drafts.append(answers.denial_of(waiting, reason))
    calls = tuple(answers.closed(call, reason) for call in state.calls)
    changed = tuple(after for was, after in zip(state.calls, calls, strict=True) if was is not after)
    if calls:
        drafts.append(tooling.returns_of(calls))
    drafts.extend(state.follow_ups)
    rulings = tuple(Ruling(call, "cancelled", reason=reason) for call in state.waiting)
    return Decision(replace(state, calls=(), follow_ups=()), tuple(drafts), changed, stop=stop, rulings=rulings)


def _asking_about(lost: tuple[ToolCall, ...]) -> str:
    """For clients that show an approval like any other: whoever approves must know that it is the second time."""
    names = ", ".join(dict.fromkeys(call.name for call in lost))
    return (
        f"The server stopped while {names} was running, so it may have taken effect already. "
        "Approve to run it again, deny to leave it, or answer with its result."
    )


def _recovered(state: State, request_id: str) -> Decision:
    """Go on from the rows. The outcome of a call that somebody else had started is unknown: by its tool's policy
    it runs again, or a human is asked through the ordinary approval flow, or the model is told."""
    calls = tuple(tooling.found_again(state.loadout, call, request_id) for call in state.calls)
    touched = tuple(after for before, after in zip(state.calls, calls, strict=True) if before is not after)
    state = replace(state, calls=calls)
    if not calls:
        return tooling.ask_model(state, state.follow_ups)
    if lost := tuple(call.call for call in calls if call.status == "unknown"):
        ask = Draft(ApprovalRequestBody(lost, (Text(_asking_about(lost)),)), request_id, calls[0].step_id)
        return Decision(state, (ask,), touched, stop="requires_approval")
    return tooling.go_on(state, touched=touched)
