"""Applies the answers of a person or client (approve, deny, edit, tool result) to waiting tool calls.

`core.loop` calls it when answers arrive and when a waiting run is cancelled. The answers of a request are checked
together before any of them takes effect: if one does not fit, nothing changes. An approval is valid only for what was
shown: if the tool or its secrets have changed since, the call does not run and the model is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.core.approvals.binding import Changed, change_since, void_text
from holdfast.core.approvals.policies import judge
from holdfast.core.conversation.messages import Answer, Approval, ApprovalResponseBody, Draft, ToolResult
from holdfast.core.errors import AlreadyDecided, Invalid, TellTheModel
from holdfast.core.state import AuditEntry, Call, DecisionsGiven, RunConfig, State
from holdfast.core.tools.call_arguments import arguments_object, as_the_tool_gets_them, parse_arguments
from holdfast.core.tools.return_clipping import clip_return

NO_PENDING_APPROVAL = (
    "Cannot process approval response: No tool call is currently awaiting approval. "
    "Please send a regular message to interact with the agent."
)
MAY_HAVE_TAKEN_EFFECT = "The tool had begun by then, and may have taken effect."
OUTCOME_UNKNOWN = "The server stopped while this tool was running, so its outcome is unknown. It was not run again."

CLIENT_SIDE_CALL = (
    "{name} runs on the client, so it cannot be approved here. Send its result "
    '({{"type": "tool", "tool_call_id": "{call_id}", "tool_return": …, "status": "success"}}), or deny it.'
)


@dataclass(frozen=True, slots=True)
class AppliedAnswers:
    """The result of `apply`: the answers with their call ids, all calls of the step, and what to audit."""

    answers: tuple[Answer, ...]
    calls: tuple[Call, ...]
    audit_entries: tuple[AuditEntry, ...]
    step_id: str


def is_repeat(state: State, given: Sequence[Answer]) -> bool:
    """Whether these answers were applied before: their calls are among the newest tool returns of the context."""
    ids = frozenset(_call_id(answer) for answer in given)
    return bool(ids) and any(ids <= returned for returned in state.answered)


def apply(state: State, given: DecisionsGiven) -> AppliedAnswers:
    """Apply the answers to the waiting calls. Raises `Invalid`, with the texts that clients know, if they do not
    fit."""
    if not given.answers:
        raise Invalid("Invalid approval response. Approval response message does not contain any approvals.")
    waiting = state.waiting
    if not waiting:
        raise Invalid(NO_PENDING_APPROVAL)
    named = tuple(_with_call_id(answer, waiting) for answer in given.answers)
    by_id = {_call_id(answer): answer for answer in named}
    _check_set(state, named, by_id, given.partial)
    calls: list[Call] = []
    audit_entries: list[AuditEntry] = []
    for call in state.calls:
        if call.waiting and call.call.id in by_id:
            call, entry = answer_call(state.config, call, by_id[call.call.id])
            audit_entries.append(entry)
        calls.append(call)
    return AppliedAnswers(named, tuple(calls), tuple(audit_entries), waiting[0].step_id)


def _check_set(state: State, named: Sequence[Answer], by_id: dict[str, Answer], partial: bool) -> None:
    """Raise unless each waiting call is answered exactly once, or with `partial` at most once."""
    expected = [call.call.id for call in state.waiting]
    received = [_call_id(answer) for answer in named]
    if partial:
        decided = {call.call.id for call in state.calls} - set(expected)
        if taken := sorted(set(received) & decided):
            raise AlreadyDecided(taken)
    fits = set(received) <= set(expected) if partial else set(received) == set(expected)
    if not fits or len(by_id) != len(named):
        raise Invalid(f"Invalid tool call IDs. Expected '{expected}', but received '{received}'.")


def answer_call(config: RunConfig, call: Call, answer: Answer) -> tuple[Call, AuditEntry]:
    """A waiting call after its answer: allowed to run, denied, or settled by the client's own result.

    If a call was edited and then lost in a crash, the person is asked again about the edited call; it keeps that edit
    unless the new answer has another one.
    """
    match answer:
        case ToolResult():
            content = answer.content
            if isinstance(content, str):
                content = clip_return(content, config.limits.return_chars)
            settled = replace(call, status="settled", result=replace(answer, call_id=call.call.id, content=content))
            return settled, AuditEntry(call, "answered")
        case Approval(approve=False, reason=reason):
            denied = replace(call, status="denied", result=denial(call, reason))
            return denied, AuditEntry(call, "denied", reason=reason)
        case Approval() if call.client_side:
            raise Invalid(CLIENT_SIDE_CALL.format(name=call.call.name, call_id=call.call.id))
        case Approval(reason=reason, arguments=arguments):
            if (changed := changed_since_asked(config, call)) is not None:
                text = void_text(changed, call.call.name)
                void = ToolResult(call.call.id, "error", text, name=call.call.name)
                return replace(call, status="denied", result=void), AuditEntry(call, "void", reason=text)
            edited = _checked_edit(config, call, arguments) if arguments is not None else call.edited
            allowed = replace(call, status="allowed", edited=edited)
            return allowed, AuditEntry(allowed, "approved" if arguments is None else "edited", reason=reason)


def changed_since_asked(config: RunConfig, call: Call) -> Changed | None:
    """What has changed since approval was requested, which makes the approval void; None if nothing has. A tool that
    no longer exists is not reported here: that is refused when the call is about to run."""
    tool = config.tools.get(call.call.name)
    return None if tool is None else change_since(call.digest, tool.digest)


def _checked_edit(config: RunConfig, call: Call, arguments: str) -> str:
    """The edited arguments as the tool gets them. Raises `Invalid` if they do not fit its schema, or if a policy denies
    the call with these arguments: a person can allow what a policy asks about, not what it forbids."""
    tool = config.tools.get(call.call.name)
    if tool is None:
        raise Invalid(f"The agent no longer has the tool {call.call.name}, so its arguments cannot be edited.")
    try:
        parse_arguments(arguments, tool.spec.parameters)
    except TellTheModel as error:
        raise Invalid(f"The edited arguments of {call.call.name} do not fit: {error}") from error
    edited = as_the_tool_gets_them(arguments, tool.spec.parameters)
    denied = judge(config.policies, call.call.name, arguments_object(edited)).decides
    if denied is not None and denied.then == "deny":
        raise Invalid(f"The policy {denied.label!r} forbids {call.call.name} with the edited arguments.")
    return edited


def close_call(call: Call, reason: str) -> Call:
    """The call as cancelled if it is open, else unchanged."""
    return replace(call, status="cancelled", result=denial(call, reason)) if call.open else call


def denial(call: Call, reason: str | None) -> ToolResult:
    """The return of a denied or cancelled call. If the call was started or its outcome is unknown, the text says that
    it may have taken effect, so that the model does not assume otherwise."""
    said = OUTCOME_UNKNOWN if call.status == "unknown" else "request to call tool denied."
    begun = f" {MAY_HAVE_TAKEN_EFFECT}" if call.status == "started" else ""
    text = f"Error: {said} User reason: {reason}{begun}"
    return ToolResult(call.call.id, "error", text, name=call.call.name)


def denial_message(waiting: Sequence[Call], reason: str) -> Draft:
    answers = tuple(Approval(call.call.id, False, reason) for call in waiting)
    return Draft(ApprovalResponseBody(answers), step_id=waiting[0].step_id)


def _call_id(answer: Answer) -> str:
    return answer.call_id if isinstance(answer, ToolResult) else answer.tool_call_id


def _with_call_id(answer: Answer, waiting: Sequence[Call]) -> Answer:
    """The answer with its call's id. The legacy request format has the id of the approval request's message instead,
    which identifies the call if only one is waiting."""
    if isinstance(answer, Approval) and len(waiting) == 1 and answer.tool_call_id == waiting[0].request_id:
        return replace(answer, tool_call_id=waiting[0].call.id)
    return answer
