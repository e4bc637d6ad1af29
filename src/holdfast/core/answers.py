"""What a human or client says to waiting calls, and what that makes of them.

Called by `core.loop` when decisions arrive and when a waiting run is cancelled. Answers are checked as a whole
before any of them counts: a set that does not fit changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.core.errors import Invalid
from holdfast.core.messages import Answer, Approval, ApprovalResponseBody, Draft, ToolResult
from holdfast.core.state import Call, State

NOTHING_WAITS = (
    "Cannot process approval response: No tool call is currently awaiting approval. "
    "Please send a regular message to interact with the agent."
)


@dataclass(frozen=True, slots=True)
class Answered:
    answers: tuple[Answer, ...]
    calls: tuple[Call, ...]
    step_id: str


def is_repeat(state: State, given: Sequence[Answer]) -> bool:
    """Nothing waits, and these calls were returned together a moment ago: the client is sending again."""
    ids = frozenset(_call_id(answer) for answer in given)
    return bool(ids) and any(ids <= returned for returned in state.answered)


def apply(state: State, given: Sequence[Answer]) -> Answered:
    """Every waiting call with its answer; raises `Invalid`, with the texts clients know, if the sets differ."""
    if not given:
        raise Invalid("Invalid approval response. Approval response message does not contain any approvals.")
    waiting = state.waiting
    if not waiting:
        raise Invalid(NOTHING_WAITS)
    named = tuple(_naming_the_call(answer, waiting) for answer in given)
    by_id = {_call_id(answer): answer for answer in named}
    expected = [call.call.id for call in waiting]
    if set(by_id) != set(expected) or len(by_id) != len(named):
        received = [_call_id(answer) for answer in named]
        raise Invalid(f"Invalid tool call IDs. Expected '{expected}', but received '{received}'.")
    calls = tuple(answer_call(c, by_id[c.call.id]) if c.waiting else c for c in state.calls)
    return Answered(named, calls, waiting[0].step_id)


def answer_call(call: Call, answer: Answer) -> Call:
    """A waiting call after its answer: allowed to run, denied, or settled by the client's own result."""
    match answer:
        case ToolResult():
            return replace(call, status="settled", result=replace(answer, call_id=call.call.id))
        case Approval(approve=True):
            return replace(call, status="allowed")
        case Approval(reason=reason):
            return replace(call, status="denied", result=denial(call, reason))


def closed(call: Call, reason: str) -> Call:
    """An open call, closed because the run was cancelled; others stay as they are."""
    return replace(call, status="cancelled", result=denial(call, reason)) if call.open else call


def denial(call: Call, reason: str | None) -> ToolResult:
    text = f"Error: request to call tool denied. User reason: {reason}"
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
