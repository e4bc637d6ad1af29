"""Builds the change that a checkpoint writes: messages with ids, ledger rows, the run's final state, and its events.

Pure but for the ids it makes. Only `Session.commit` calls it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from holdfast.core.conversation.messages import (
    ApprovalRequestBody,
    AssistantBody,
    Message,
    SummaryBody,
    ToolReturnsBody,
)
from holdfast.core.conversation.wire_messages import WireObject, event_record, summary_record, wire_messages
from holdfast.core.failures import error_object
from holdfast.core.lifecycle import check_call_change, check_run_change, status_for
from holdfast.core.records import Run, Step
from holdfast.core.run_request import RunRequest
from holdfast.core.state import (
    ASSUMED_WINDOW,
    Call,
    CancelAsked,
    Compact,
    Decision,
    DecisionsGiven,
    Failure,
    Happened,
    ModelReplied,
    State,
    UserSpoke,
)
from holdfast.engine.run.compaction import Shortened
from holdfast.engine.run.loaded_conversation import LoadedConversation
from holdfast.engine.run.model_call import ModelCall
from holdfast.engine.stream import event_records
from holdfast.ports.stores.run_store import Change, Rest
from holdfast.ports.toolbox import MemoryEdit

BAD_RULE = "A tool rule of the agent fills in arguments that do not fit its tool; the tool's return says which."
CUT_SHORT = "The reply reached the model's limit and ends in the middle; raise max_output_tokens in model_settings."


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened to a run, and what its checkpoint stores besides the decision.

    An effect returns one. `step` is the row of its step; `call` is a model call whose trace is stored once that row is;
    `context_tokens` is the count of the model; `shortened` is a compacted context.
    """

    happened: Happened
    step: Step | None = None
    step_is_new: bool = True
    call: ModelCall | None = None
    context_tokens: int | None = None
    ttft_ns: int | None = None
    edits: tuple[MemoryEdit, ...] = ()
    shortened: Shortened | None = None


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events that are stored with a change, before its own, numbered from `first`."""

    first: int
    records: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """The input of `build_change`."""

    decision: Decision
    before: State
    loaded: LoadedConversation
    run: Run
    request: RunRequest
    outcome: Outcome
    page: EventPage
    now: datetime
    duration_ns: int
    first: bool

    @property
    def streamed(self) -> frozenset[str]:
        """The ids of messages that subscribers have already received piece by piece."""
        happened = self.outcome.happened
        if self.request.stream_tokens and isinstance(happened, ModelReplied):
            return frozenset({happened.message_id, happened.request_id})
        return frozenset()


def build_change(
    loaded: LoadedConversation,
    before: State,
    run: Run,
    request: RunRequest,
    decision: Decision,
    outcome: Outcome,
    *,
    page: EventPage,
    now: datetime,
    duration_ns: int,
    decided_by: str | None,
    first: bool,
    revision: int | None = None,
) -> Change:
    facts = _Facts(
        decision=decision,
        before=before,
        loaded=loaded,
        run=run,
        request=request,
        outcome=outcome,
        page=page,
        now=now,
        duration_ns=duration_ns,
        first=first,
    )
    drafts, shortened = decision.messages, outcome.shortened
    if shortened is not None:
        drafts = (shortened.draft, *drafts)
    messages = loaded.new_messages(drafts, run.id, now)
    new, changed = _ledger(before, decision)
    step = outcome.step
    if step is not None and decision.stop is not None:
        step = replace(step, stop_reason=decision.stop)
    takes_input = isinstance(outcome.happened, UserSpoke | DecisionsGiven)
    return Change(
        conversation_id=loaded.conversation.id,
        version=loaded.version,
        next_seq=loaded.next_seq,
        messages=messages,
        beside_context=frozenset(
            message.id for draft, message in zip(drafts, messages, strict=True) if not draft.in_context
        ),
        unanswered_from=_unanswered_from(facts),
        system=_system(facts),
        cut=shortened.cut if shortened else None,
        new_calls=new,
        changed_calls=changed,
        step=step,
        step_is_new=outcome.step_is_new,
        events=(*page.records, *_events(facts, messages)),
        first_event=page.first,
        edits=outcome.edits,
        rest=_rest(facts),
        ttft_ns=outcome.ttft_ns,
        num_steps=decision.state.steps,
        context_tokens=None if decision.rollback else decision.state.context_tokens,
        audit_entries=decision.audit_entries,
        rollback=decision.rollback,
        allow=request.allow if takes_input else {},
        decided_by=decided_by,
        revision=revision,
    )


def _unanswered_from(facts: _Facts) -> int | None:
    """Unset when a turn is answered; else set by the first turn that is not, which may still be under way."""
    stop, since = facts.decision.stop, facts.loaded.unanswered_from
    if stop is not None and stop != "requires_approval" and status_for(stop) == "completed":
        return None
    begins = isinstance(facts.outcome.happened, UserSpoke | DecisionsGiven | CancelAsked)
    return facts.loaded.next_seq if begins and since is None else since


def _system(facts: _Facts) -> Message | None:
    """The recompiled system message, if the prompt or memory changed before this run or a tool has edited memory."""
    if not facts.outcome.edits and not facts.first:
        return None
    after = replace(facts.loaded)
    after.apply_edits(facts.outcome.edits)
    return after.recompiled_system()


def _ledger(before: State, decision: Decision) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    known = {(call.step_id, call.call.id): call.status for call in before.calls}
    new = tuple(call for call in decision.calls if (call.step_id, call.call.id) not in known)
    changed = tuple(call for call in decision.calls if (call.step_id, call.call.id) in known)
    for call in changed:
        check_call_change(known[call.step_id, call.call.id], call.status)
    return new, changed


def _rest(facts: _Facts) -> Rest | None:
    stop = facts.decision.stop
    if stop is None:
        return None
    check_run_change(facts.run.status, status_for(stop), facts.run.stop_reason)
    return Rest(
        status=status_for(stop),
        stop_reason=stop,
        completed_at=facts.now,
        total_duration_ns=facts.duration_ns,
        metadata=_final_metadata(facts),
        ran_tools=bool(facts.before.called or facts.before.calls or facts.decision.calls),
    )


def _final_metadata(facts: _Facts) -> dict[str, Any]:
    return {**_price_notice(facts.decision.state), **_ending(facts)}


def _price_notice(state: State) -> dict[str, Any]:
    """Tell the client if the cost limit could not be enforced completely."""
    if state.config.limits.budget.max_cost_usd is None or not state.unpriced:
        return {}
    return {"budget_notice": "The price of a model that was used is not known, so max_cost_usd did not count it."}


def _ending(facts: _Facts) -> dict[str, Any]:
    """The run's metadata about its end: why it failed, which limit it reached, or who cancelled it and why."""
    if (failure := facts.decision.failure) is not None:
        return {"error": error_object(facts.run.id, failure)}
    stop, spent = facts.decision.stop, facts.decision.spent
    if stop == "cancelled":
        rollback = {"rollback": True} if facts.run.cancel_rollback else {}
        return {"cancelled": {"by": facts.run.cancel_asked_by, "reason": facts.run.cancel_reason, **rollback}}
    ending: dict[str, Any] = {} if spent is None else {"budget": spent.to_json()}
    if stop == "max_tokens_exceeded":
        ending["error"] = error_object(facts.run.id, Failure(stop, CUT_SHORT if spent is None else spent.message))
    if stop == "invalid_tool_call":
        ending["error"] = error_object(facts.run.id, Failure(stop, BAD_RULE))
    return ending


def _events(facts: _Facts, messages: tuple[Message, ...]) -> list[str]:
    """The events of this checkpoint, numbered after those of `page`."""
    seq = facts.page.first + len(facts.page.records)
    shown: list[str] = []
    for message in messages:
        for wire in _shown(message, facts):
            shown.append(event_records.numbered(wire, seq + len(shown)))
    for effect in facts.decision.effects:
        if isinstance(effect, Compact) and facts.request.include_compaction:
            shown.append(event_records.numbered(_compaction_event(effect, facts), seq + len(shown)))
    if facts.decision.stop is not None:
        shown.extend(_closing(facts, seq + len(shown)))
    return shown


def _compaction_event(effect: Compact, facts: _Facts) -> WireObject:
    """The event that compaction begins; the summary message follows when it is done."""
    state = facts.decision.state
    return event_record(
        str(uuid4()),
        facts.run.id,
        facts.now,
        {
            "trigger": effect.trigger,
            "context_token_estimate": state.context_tokens,
            "context_window": state.config.limits.window or ASSUMED_WINDOW,
        },
    )


def _shown(message: Message, facts: _Facts) -> list[WireObject]:
    """The events of a message. A reply that was streamed in pieces is not sent again, and neither are messages of the
    client."""
    body = message.body
    if message.id in facts.streamed:
        return _held_back(message, facts.before.shown_whole)
    match body:
        case AssistantBody(interrupted=interrupted):
            return [] if interrupted else wire_messages(message)
        case ApprovalRequestBody():
            return wire_messages(message)
        case ToolReturnsBody():
            return [] if facts.request.stream_tokens and message.name is None else wire_messages(message)
        case SummaryBody():
            return [summary_record(message, body)] if facts.request.include_compaction else []
        case _:
            return []


def _held_back(message: Message, late: frozenset[str]) -> list[WireObject]:
    """Calls that could not be streamed piece by piece (`State.shown_whole`)."""
    body = message.body
    if not isinstance(body, AssistantBody | ApprovalRequestBody):
        return []
    held = tuple(call for call in body.calls if call.name in late)
    return wire_messages(replace(message, body=replace(body, calls=held)))[-1:] if held else []


def _closing(facts: _Facts, seq: int) -> list[str]:
    """The stop reason, then either usage or the error; a cancelled run has neither."""
    stop, failure = facts.decision.stop, facts.decision.failure
    assert stop is not None
    closing = [event_records.stop_record(stop, facts.decision.spent)]
    if failure is not None:
        closing.append(event_records.error_record(error_object(facts.run.id, failure), seq + 1))
    elif stop != "cancelled":
        spent = facts.decision.state.spent
        usage = spent if facts.request.stream_tokens else spent.counted()
        closing.append(
            event_records.record(
                event_records.usage_wire(usage, facts.decision.state.steps, facts.outcome.context_tokens)
            )
        )
    return closing
