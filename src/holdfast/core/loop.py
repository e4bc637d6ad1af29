"""The agent loop as a pure function: from a run's state and one event it decides what happens next.

    decide(state, happened) -> Decision

It reads no clock, makes no ids and does no I/O. The driver (`engine.run.driver`) performs the effects of a decision
and passes their results back in, until a decision has a `stop`. Every request, whether it is answered directly,
streamed or run in the background, goes through this loop.

How a turn goes:

1. The user's messages are stored and the model is called.
2. A reply without tool calls ends the turn.
3. If some calls of a reply need a person's approval, the run stops with `requires_approval`. No call of that step
   starts until all of them are answered, not even the allowed ones.
4. Otherwise the calls run: first those whose tools allow parallel execution, all at once; then the others, one by one.
5. When the last call is settled, the results become one message and the model is called again.

Invariant, property-tested over random histories: after every decision that stops, each tool call in the
context has exactly one return, or the run waits for a person and exactly the waiting calls have none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from holdfast.core import run_limits, step_calls
from holdfast.core.approvals import answers
from holdfast.core.conversation.messages import (
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Draft,
    Text,
    ToolCall,
    ToolResult,
    UserBody,
)
from holdfast.core.conversation.repeated_messages import KEEP_ALIVE, read_once
from holdfast.core.errors import Invalid, PendingApproval
from holdfast.core.lifecycle import StopReason
from holdfast.core.state import (
    AuditEntry,
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
    State,
    ToolSettled,
    UserSpoke,
)

INTERRUPTED = "The user cancelled the request, so the tool call was denied."


def decide(state: State, happened: Happened) -> Decision:
    """Decide what follows from `happened`. `run_limits` checks the run's limits wherever the model would be called."""
    return run_limits.apply(_decide(state, happened))


def _decide(state: State, happened: Happened) -> Decision:
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
            return step_calls.ask_model(run_limits.after_compaction(state, tokens, usage, price))
        case CompactionFailed(usage=usage, price=price):
            state = run_limits.paid(state, usage, price)
            next_try = run_limits.next_compaction(state, happened)
            return next_try or step_calls.ask_model(run_limits.postpone_compaction(state))
        case CancelAsked():
            return _cancelled(state, happened)
        case Recovered(request_id=request_id):
            return _recovered(state, request_id)
        case BudgetSpent():
            return _budget_spent(state, happened)
        case Crashed(message=message):
            return _crashed(state, message)
        case _:
            assert_never(happened)


# ---- a request arrives ----------------------------------------------------------------------------------------


def _user_spoke(state: State, messages: tuple[Draft, ...]) -> Decision:
    if waiting := state.waiting:
        raise PendingApproval(waiting[0].request_id or "")
    return step_calls.ask_model(state, _not_read_yet(state, messages))


def _not_read_yet(state: State, messages: tuple[Draft, ...]) -> tuple[Draft, ...]:
    # A model cannot be called with its own interrupted reply as the newest message.
    return read_once(state.unanswered, messages, needs_new=state.ends_interrupted)


def _decisions_given(state: State, given: DecisionsGiven) -> Decision:
    """Settle the answered calls and start the approved ones. If answers are sent twice, the second request changes no
    call: it only calls the model again."""
    if not state.waiting and not given.partial and answers.is_repeat(state, given.answers):
        again = given.follow_ups or (Draft(UserBody((Text(KEEP_ALIVE),))),)
        return step_calls.ask_model(state, _not_read_yet(state, again))
    answered = answers.apply(state, given)
    response = Draft(ApprovalResponseBody(answered.answers), step_id=answered.step_id)
    changed = tuple(new for old, new in zip(state.calls, answered.calls, strict=True) if old is not new)
    after = replace(state, calls=answered.calls, follow_ups=(*state.follow_ups, *given.follow_ups))
    if after.waiting:
        if given.follow_ups:
            raise Invalid("Messages can only be sent along with the last answer; others are still awaited.")
        return Decision(after, (response,), changed, stop="requires_approval", audit_entries=answered.audit_entries)
    return replace(step_calls.proceed(after, before=(response,), touched=changed), audit_entries=answered.audit_entries)


# ---- the model ------------------------------------------------------------------------------------------------


def _model_replied(state: State, happened: ModelReplied) -> Decision:
    reply = happened.reply
    state = run_limits.after_reply(replace(state, steps=state.steps + 1), reply.usage, happened.price)
    # Some vendors return several calls even when parallel calls are off; then only the first one counts.
    written = reply.calls if state.config.parallel_calls else reply.calls[:1]
    if not written:
        return _text_only(state, happened)
    if (fault := step_calls.fault_of_filled_in(state, written)) is not None:
        said = Draft(AssistantBody(reply.parts, written), happened.message_id, happened.step_id)
        return step_calls.refuse_all(state, said, written, fault)
    asked = step_calls.with_final_arguments(state, written)
    calls, audit_entries = step_calls.judge_calls(state.config, asked, happened)
    state = replace(state, calls=calls)
    gated = tuple(call.call for call in calls if call.waiting)
    free = tuple(call.call for call in calls if not call.waiting)
    if not gated:
        whole = Draft(AssistantBody(reply.parts, asked), happened.message_id, happened.step_id)
        return replace(step_calls.proceed(state, before=(whole,), touched=calls), audit_entries=audit_entries)
    # The reply's text is stored once: with the allowed calls if there are any, else with the approval request.
    ask = ApprovalRequestBody(gated, () if free else reply.parts)
    request = Draft(ask, happened.request_id, happened.step_id)
    said = Draft(AssistantBody(reply.parts, free), happened.message_id, happened.step_id)
    return Decision(
        state, (said, request) if free else (request,), calls, stop="requires_approval", audit_entries=audit_entries
    )


def _text_only(state: State, happened: ModelReplied) -> Decision:
    """A reply without calls ends the turn, unless a tool rule requires a call first; then the model is told so."""
    reply = happened.reply
    said: tuple[Draft, ...] = ()
    if reply.parts:
        said = (Draft(AssistantBody(reply.parts), happened.message_id, happened.step_id),)
    if step_calls.still_required_of(state):
        return step_calls.ask_for_required(state, said, happened.step_id)
    return Decision(state, said, stop="max_tokens_exceeded" if reply.finish == "length" else "end_turn")


def _model_failed(state: State, failed: ModelFailed) -> Decision:
    if failed.kind == "context_overflow":
        return run_limits.on_overflow(state, failed)
    failure = Failure(failed.kind, failed.message, failed.detail)
    match failed.kind:
        case "llm_empty_response":
            return Decision(state, stop="invalid_llm_response", failure=failure)
        case "llm_insufficient_credits":
            return Decision(state, stop="insufficient_credits", failure=failure)
        case _:
            return Decision(state, stop="llm_api_error", failure=failure)


# ---- tools ----------------------------------------------------------------------------------------------------


def _tool_settled(state: State, call_id: str, result: ToolResult) -> Decision:
    for call in state.calls:
        if call.call.id == call_id and call.status == "started":
            noted = step_calls.with_edit_note(call, result)
            settled = replace(call, status="settled", result=noted, executed=True)
            return step_calls.proceed(state.with_call(settled), touched=(settled,))
    return Decision(state)  # a late result of a call that is no longer open changes nothing


# ---- interruptions --------------------------------------------------------------------------------------------


def _cancelled(state: State, asked: CancelAsked) -> Decision:
    """Keep the part of the reply that the user has seen, close every open call and stop. Idempotent: without open calls
    it only stops. A rollback removes the turn from the context, but its messages stay in the history."""
    seen: tuple[Draft, ...] = ()
    if asked.partial:
        seen = (Draft(AssistantBody(asked.partial, interrupted=True), asked.message_id, asked.step_id),)
    closed = _closed(state, "cancelled", INTERRUPTED, before=seen)
    if asked.reason is not None:
        closed = replace(
            closed, audit_entries=tuple(replace(entry, reason=asked.reason) for entry in closed.audit_entries)
        )
    return replace(closed, rollback=asked.rollback)


def _budget_spent(state: State, over: BudgetSpent) -> Decision:
    """The time limit was reached: keep the part of the reply that the user has seen, close every open call and stop."""
    seen: tuple[Draft, ...] = ()
    if over.partial:
        seen = (Draft(AssistantBody(over.partial, interrupted=True), over.message_id, over.step_id),)
    return replace(_closed(state, over.spent.stop, over.spent.message, before=seen), spent=over.spent)


def _crashed(state: State, message: str) -> Decision:
    """A bug in the server must not make the conversation unusable: close every open call, report the failure, stop."""
    # A started call may have taken effect, so the model is told that its outcome is unknown.
    calls = (replace(call, status="unknown") if call.status == "started" else call for call in state.calls)
    state = replace(state, calls=tuple(calls))
    closed = _closed(state, "error", "The server failed while working on this request.")
    return replace(closed, failure=Failure("internal_error", message))


def _closed(state: State, stop: StopReason, reason: str, before: tuple[Draft, ...] = ()) -> Decision:
    """Stop the run: give every open call a return and keep the follow-up messages that the user sent with answers."""
    drafts = list(before)
    if waiting := state.waiting:
        drafts.append(answers.denial_message(waiting, reason))
    calls = tuple(answers.close_call(call, reason) for call in state.calls)
    changed = tuple(new for old, new in zip(state.calls, calls, strict=True) if old is not new)
    if calls:
        drafts.append(step_calls.returns_of(calls))
    drafts.extend(state.follow_ups)
    audit_entries = tuple(AuditEntry(call, "cancelled", reason=reason) for call in state.waiting)
    return Decision(
        replace(state, calls=(), follow_ups=()), tuple(drafts), changed, stop=stop, audit_entries=audit_entries
    )


def _lost_calls_text(lost: tuple[ToolCall, ...]) -> str:
    """The text of the request about lost calls. Clients show it like any other approval request, so the text has to say
    that the tool would run a second time."""
    names = ", ".join(dict.fromkeys(call.name for call in lost))
    return (
        f"The server stopped while {names} was running, so it may have taken effect already. "
        "Approve to run it again, deny to leave it, or answer with its result."
    )


def _recovered(state: State, request_id: str) -> Decision:
    """Continue a run that another process left behind. The outcome of a call that it had started is unknown: by its
    tool's policy the call runs again, or a person is asked through the approval flow, or the model is told."""
    calls = tuple(step_calls.recover_call(state.config, call, request_id) for call in state.calls)
    touched = tuple(new for old, new in zip(state.calls, calls, strict=True) if old is not new)
    state = replace(state, calls=calls)
    if not calls:
        return step_calls.ask_model(state, state.follow_ups)
    if lost := tuple(call.to_run for call in calls if call.status == "unknown"):
        ask = Draft(ApprovalRequestBody(lost, (Text(_lost_calls_text(lost)),)), request_id, calls[0].step_id)
        return Decision(state, (ask,), touched, stop="requires_approval")
    return step_calls.proceed(state, touched=touched)
