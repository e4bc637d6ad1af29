"""What a human or client says to waiting calls, and what that makes of them.

Called by `core.loop` when decisions arrive and when a waiting run is cancelled. Answers are checked as a whole
before any of them counts: a set that does not fit changes nothing. An approval holds for exactly what was shown: if
the tool has changed since, the call does not run, and the model is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.core.arguments import parse_arguments
from holdfast.core.clipping import clip_return
from holdfast.core.errors import AlreadyDecided, Invalid, TellTheModel
from holdfast.core.messages import Answer, Approval, ApprovalResponseBody, Draft, ToolResult
from holdfast.core.state import Call, DecisionsGiven, Loadout, Ruling, State

NOTHING_WAITS = (
    "Cannot process approval response: No tool call is currently awaiting approval. "
    "Please send a regular message to interact with the agent."
)
BEGUN = "The tool had begun by then, and may have taken effect."
LOST = "The server stopped while this tool was running, so its outcome is unknown. It was not run again."
CHANGED_TOOL = (
    "Error: the tool {name} was changed after approval was asked for, so the approval is void and it was not run. "
    "Call it again if it is still needed."
)


@dataclass(frozen=True, slots=True)
class Answered:
    answers: tuple[Answer, ...]
    calls: tuple[Call, ...]
    rulings: tuple[Ruling, ...]
    step_id: str


def is_repeat(state: State, given: Sequence[Answer]) -> bool:
    """Nothing waits, and these calls were returned together a moment ago: the client is sending again."""
    ids = frozenset(_call_id(answer) for answer in given)
    return bool(ids) and any(ids <= returned for returned in state.answered)


def apply(state: State, given: DecisionsGiven) -> Answered:
    """Every answered call with its answer; raises, with the texts clients know, if the answers do not fit."""
    if not given.answers:
        raise Invalid("Invalid approval response. Approval response message does not contain any approvals.")
    waiting = state.waiting
    if not waiting:
        raise Invalid(NOTHING_WAITS)
    named = tuple(_naming_the_call(answer, waiting) for answer in given.answers)
    by_id = {_call_id(answer): answer for answer in named}
    _check_set(state, named, by_id, given.partial)
    calls: list[Call] = []
    rulings: list[Ruling] = []
    for call in state.calls:
        if call.waiting and call.call.id in by_id:
            call, ruling = answer_call(state.loadout, call, by_id[call.call.id])
            rulings.append(ruling)
        calls.append(call)
    return Answered(named, tuple(calls), tuple(rulings), waiting[0].step_id)


def _check_set(state: State, named: Sequence[Answer], by_id: dict[str, Answer], partial: bool) -> None:
    """All of the waiting calls, or with `partial` some of them; each once."""
    expected = [call.call.id for call in state.waiting]
    received = [_call_id(answer) for answer in named]
    if partial:
        decided = {call.call.id for call in state.calls} - set(expected)
        if taken := sorted(set(received) & decided):
            raise AlreadyDecided(taken)
    fits = set(received) <= set(expected) if partial else set(received) == set(expected)
    if not fits or len(by_id) != len(named):
        raise Invalid(f"Invalid tool call IDs. Expected '{expected}', but received '{received}'.")


def answer_call(loadout: Loadout, call: Call, answer: Answer) -> tuple[Call, Ruling]:
    """A waiting call after its answer: allowed to run, denied, or settled by the client's own result."""
    match answer:
        case ToolResult():
            content = answer.content
            if isinstance(content, str):
                content = clip_return(content, loadout.terms.return_chars)
            settled = replace(call, status="settled", result=replace(answer, call_id=call.call.id, content=content))
            return settled, Ruling(call, "answered")
        case Approval(approve=False, reason=reason):
            denied = replace(call, status="denied", result=denial(call, reason))
            return denied, Ruling(call, "denied", reason=reason)
        case Approval(reason=reason, arguments=arguments):
            if _has_changed(loadout, call):
                text = CHANGED_TOOL.format(name=call.call.name)
                void = ToolResult(call.call.id, "error", text, name=call.call.name)
                return replace(call, status="denied", result=void), Ruling(call, "void", reason=text)
            allowed = replace(call, status="allowed", edited=_checked(loadout, call, arguments))
            return allowed, Ruling(allowed, "approved" if arguments is None else "edited", reason=reason)


def _has_changed(loadout: Loadout, call: Call) -> bool:
    hand = loadout.tools.get(call.call.name)
    return bool(call.digest) and hand is not None and hand.digest != call.digest


def _checked(loadout: Loadout, call: Call, arguments: str | None) -> str | None:
    """Edited arguments must fit the tool's schema, like any others."""
    if arguments is None:
        return None
    hand = loadout.tools.get(call.call.name)
    if hand is None:
        raise Invalid(f"{call.call.name} runs on the client; its arguments cannot be edited here.")
    try:
        parse_arguments(arguments, hand.spec.parameters)
    except TellTheModel as error:
        raise Invalid(f"The edited arguments of {call.call.name} do not fit: {error}") from error
    return arguments


def closed(call: Call, reason: str) -> Call:
    """An open call, closed because the run was cancelled; others stay as they are."""
    return replace(call, status="cancelled", result=denial(call, reason)) if call.open else call


def denial(call: Call, reason: str | None) -> ToolResult:
    """A call that was lost may have taken effect, whatever is said about it now, and so may one that had begun; the
    model must not think otherwise."""
    said = LOST if call.status == "unknown" else "request to call tool denied."
    begun = f" {BEGUN}" if call.status == "started" else ""
    text = f"Error: {said} User reason: {reason}{begun}"
    return ToolResult(call.call.id, "error", text, name=call.call.name)


def denial_of(waiting: Sequence[Call], reason: str) -> Draft:
    answers = tuple(Approval(call.call.id, False, reason) for call in waiting)
    return Draft(ApprovalResponseBody(answers), step_id=waiting[0].step_id)


def _call_id(answer: Answer) -> str:
    return answer.call_id if isinstance(answer, ToolResult) else answer.tool_call_id


def _naming_the_call(answer: Answer, waiting: Sequence[Call]) -> Answer:
    """The legacy shape names the request's message instead of the call; with one call waiting that is clear."""
    if isinstance(answer, Approval) and len(waiting) == 1 and answer.tool_call_id == waiting[0].request_id:
        return replace(answer, tool_call_id=waiting[0].call.id)
    return answer
