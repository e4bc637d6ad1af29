"""From a decision to the change that writes it: messages with ids, ledger rows, the run's rest, and its events.

Pure but for the ids it makes. The driver hands in everything it knows; what comes out is one `Change`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from holdfast.core.failures import error_object
from holdfast.core.lifecycle import check_call_change, check_run_change, status_for
from holdfast.core.messages import (
    ApprovalRequestBody,
    AssistantBody,
    Message,
    SummaryBody,
    ToolReturnsBody,
)
from holdfast.core.outward import Wire, event_record, outward, summary_record
from holdfast.core.records import Run, Step
from holdfast.core.request import RunRequest
from holdfast.core.state import ASSUMED_WINDOW, Call, Compact, Decision, Failure, State
from holdfast.engine import stream
from holdfast.engine.compaction import Shortened
from holdfast.engine.scene import Scene
from holdfast.ports.runs import Change, Rest
from holdfast.ports.toolbox import MemoryEdit

CUT_SHORT = "The reply reached the model's limit and ends in the middle; raise max_output_tokens in model_settings."


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What a checkpoint is drawn up from."""

    decision: Decision
    before: State
    scene: Scene
    run: Run
    request: RunRequest
    now: datetime
    first_event: int
    records: list[str] = field(default_factory=list)
    step: Step | None = None
    step_is_new: bool = True
    context_tokens: int | None = None
    duration_ns: int = 0
    ttft_ns: int | None = None
    edits: tuple[MemoryEdit, ...] = ()
    shortened: Shortened | None = None
    streamed: frozenset[str] = frozenset()
    decided_by: str | None = None  # who sent the answers, for the audit log
    first: bool = False  # the first change of a run brings the system message up to date
    takes_input: bool = False  # the request's own input is what is decided here


def draw_up(facts: Drawn) -> Change:
    decision, scene = facts.decision, facts.scene
    drafts = decision.messages
    if facts.shortened is not None:
        drafts = (facts.shortened.draft, *drafts)
    messages = scene.write_up(drafts, facts.run.id, facts.now)
    new, changed = _ledger(facts.before, decision)
    events = [*facts.records, *_events(facts, messages)]
    step = facts.step
    if step is not None and decision.stop is not None:
        step = replace(step, stop_reason=decision.stop)
    return Change(
        conversation_id=scene.conversation.id,
        version=scene.version,
        next_seq=scene.next_seq,
        messages=messages,
        system=_system(scene, facts),
        cut=facts.shortened.cut if facts.shortened else None,
        new_calls=new,
        changed_calls=changed,
        step=step,
        step_is_new=facts.step_is_new,
        events=tuple(events),
        first_event=facts.first_event,
        edits=facts.edits,
        rest=_rest(facts),
        ttft_ns=facts.ttft_ns,
        num_steps=decision.state.steps,
        context_tokens=None if decision.rollback else decision.state.context_tokens,
        rulings=decision.rulings,
        rollback=decision.rollback,
        allow=facts.request.allow if facts.takes_input else {},
        decided_by=facts.decided_by,
    )


def _system(scene: Scene, facts: Drawn) -> Message | None:
    """The system message anew, if the prompt or memory changed before this run or a tool has just edited memory."""
    if not facts.edits and not facts.first:
        return None
    after = replace(scene)
    after.edit(facts.edits)
    return after.fresh_system()


def _ledger(before: State, decision: Decision) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    known = {(call.step_id, call.call.id): call.status for call in before.calls}
    new = tuple(call for call in decision.calls if (call.step_id, call.call.id) not in known)
    changed = tuple(call for call in decision.calls if (call.step_id, call.call.id) in known)
    for call in changed:
        check_call_change(known[call.step_id, call.call.id], call.status)
    return new, changed


def _rest(facts: Drawn) -> Rest | None:
    stop = facts.decision.stop
    if stop is None:
        return None
    check_run_change(facts.run.status, status_for(stop), facts.run.stop_reason)
    return Rest(
        status=status_for(stop),
        stop_reason=stop,
        completed_at=facts.now,
        total_duration_ns=facts.duration_ns,
        metadata=_epitaph(facts),
        ran_tools=bool(facts.before.called or facts.before.calls or facts.decision.calls),
    )


def _epitaph(facts: Drawn) -> dict[str, Any]:
    return {**_price_notice(facts.decision.state), **_ending(facts)}


def _price_notice(state: State) -> dict[str, Any]:
    """A limit that could not be kept is not passed over in silence."""
    if state.loadout.terms.budget.max_cost_usd is None or not state.unpriced:
        return {}
    return {"budget_notice": "The price of a model that was used is not known, so max_cost_usd did not count it."}


def _ending(facts: Drawn) -> dict[str, Any]:
    """What the run's metadata says of its end: why it failed, what it had used up, or who cancelled it and why."""
    if (failure := facts.decision.failure) is not None:
        return {"error": error_object(facts.run.id, failure)}
    stop, spent = facts.decision.stop, facts.decision.spent
    if stop == "cancelled":
        rollback = {"rollback": True} if facts.run.cancel_rollback else {}
        return {"cancelled": {"by": facts.run.cancel_asked_by, "reason": facts.run.cancel_reason, **rollback}}
    ending: dict[str, Any] = {} if spent is None else {"budget": spent.to_json()}
    if stop == "max_tokens_exceeded":
        ending["error"] = error_object(facts.run.id, Failure(stop, CUT_SHORT if spent is None else spent.message))
    return ending


def _events(facts: Drawn, messages: tuple[Message, ...]) -> list[str]:
    """What subscribers are shown of this checkpoint, numbered after what was gathered before it."""
    seq = facts.first_event + len(facts.records)
    shown: list[str] = []
    for message in messages:
        for wire in _shown(message, facts):
            shown.append(stream.numbered(wire, seq + len(shown)))
    for effect in facts.decision.effects:
        if isinstance(effect, Compact) and facts.request.include_compaction:
            shown.append(stream.numbered(_compaction_event(effect, facts), seq + len(shown)))
    if facts.decision.stop is not None:
        shown.extend(_closing(facts, seq + len(shown)))
    return shown


def _compaction_event(effect: Compact, facts: Drawn) -> Wire:
    """Compaction begins now; its outcome follows as a summary message."""
    state = facts.decision.state
    return event_record(
        str(uuid4()),
        facts.run.id,
        facts.now,
        {
            "trigger": effect.trigger,
            "context_token_estimate": state.context_tokens,
            "context_window": state.loadout.terms.window or ASSUMED_WINDOW,
        },
    )


def _shown(message: Message, facts: Drawn) -> list[Wire]:
    """Replies that were streamed piece by piece are not shown again whole; neither is what the client sent."""
    body = message.body
    if message.id in facts.streamed:
        return _held_back(message, facts.before.loadout.judged_late)
    match body:
        case AssistantBody(interrupted=interrupted):
            return [] if interrupted else outward(message)
        case ApprovalRequestBody():
            return outward(message)
        case ToolReturnsBody():
            return [] if facts.request.stream_tokens and message.name is None else outward(message)
        case SummaryBody():
            return [summary_record(message, body)] if facts.request.include_compaction else []
        case _:
            return []


def _held_back(message: Message, late: frozenset[str]) -> list[Wire]:
    """Calls that could not be streamed, because only their arguments told whether a human is asked."""
    body = message.body
    if not isinstance(body, AssistantBody | ApprovalRequestBody):
        return []
    held = tuple(call for call in body.calls if call.name in late)
    return outward(replace(message, body=replace(body, calls=held)))[-1:] if held else []


def _closing(facts: Drawn, seq: int) -> list[str]:
    """The stop reason, then either usage or the error; a cancelled run has neither."""
    stop, failure = facts.decision.stop, facts.decision.failure
    assert stop is not None
    closing = [stream.stop_record(stop, facts.decision.spent)]
    if failure is not None:
        closing.append(stream.error_record(error_object(facts.run.id, failure), seq + 1))
    elif stop != "cancelled":
        spent = facts.decision.state.spent
        usage = spent if facts.request.stream_tokens else spent.counted()
        closing.append(stream.record(stream.usage_wire(usage, facts.decision.state.steps, facts.context_tokens)))
    return closing
