"""Groups stored messages into turns that every vendor accepts, before anything is encoded.

Our messages are facts as they were stored; a vendor expects turns: a reply, then the results of exactly its calls,
then new input. The differences are handled here, so that each API only has to encode turns:

- A reply with both allowed and gated calls is stored as an assistant message directly followed by an approval
  request. It was one reply, so it becomes one `AssistantTurn`.
- An approval response is not sent: the tool returns that follow it have the outcome.
- A call without a result gets one that says so, and a result without its call is left out. The loop keeps history
  valid, so this is a second safeguard: otherwise the vendor would reject every later request of the conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.core.conversation.messages import (
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Message,
    Part,
    SummaryBody,
    SystemBody,
    ToolCall,
    ToolResult,
    ToolReturnsBody,
    UserBody,
)

NO_RESULT = "No result was recorded for this call."


class SpokenTurn(NamedTuple):
    """One message of the system or the user, or a summary."""

    body: SystemBody | UserBody | SummaryBody


class AssistantTurn(NamedTuple):
    """One whole reply, whether it was stored as one message or two."""

    parts: tuple[Part, ...]
    calls: tuple[ToolCall, ...]


class ResultsTurn(NamedTuple):
    """The results of the previous reply's calls: exactly one per call, with its tool's name."""

    results: tuple[ToolResult, ...]


Turn = SpokenTurn | AssistantTurn | ResultsTurn


def turns(messages: Iterable[Message]) -> list[Turn]:
    """The turns of a context, in order."""
    builder = _TurnBuilder()
    for message in messages:
        match message.body:
            case AssistantBody(parts=parts, calls=calls):
                builder.close()
                builder.reply(parts, calls)
            case ApprovalRequestBody(calls=calls) if builder.awaits_all(calls):
                continue  # a second approval request for calls whose outcome was lost; the model made them only once
            case ApprovalRequestBody(parts=parts, calls=calls):
                if builder.collecting_results:
                    builder.close()
                builder.reply(parts, calls)
            case ToolReturnsBody(results=results):
                builder.add_results(results)
            case ApprovalResponseBody():
                builder.add_results(())
            case SystemBody() | UserBody() | SummaryBody() as body:
                builder.close()
                builder.turns.append(SpokenTurn(body))
    builder.close()
    return builder.turns


def begins_a_turn(messages: Sequence[Message], index: int) -> bool:
    """Whether the messages before this one and those from it on can be grouped into turns separately."""
    match messages[index].body:
        case AssistantBody():
            return True
        case ApprovalRequestBody():
            return _all_calls_returned_before(messages[:index])
        case _:
            return False


def _all_calls_returned_before(messages: Sequence[Message]) -> bool:
    """Whether every call of the previous reply has its result, so that no approval request can belong to it."""
    returned: set[str] = set()
    for message in reversed(messages):
        match message.body:
            case ToolReturnsBody(results=results):
                returned |= {result.call_id for result in results}
            case ApprovalResponseBody():
                pass
            case AssistantBody(calls=calls) | ApprovalRequestBody(calls=calls) as body:
                if not returned or any(call.id not in returned for call in calls):
                    return False
                if isinstance(body, AssistantBody):
                    return True
            case _:
                return True
    return True


def in_order(turn: AssistantTurn) -> list[Part | ToolCall]:
    """Parts and calls in the order the model gave them, for APIs that keep both in one list."""
    ordered: list[Part | ToolCall] = []
    left = list(turn.calls)
    for index, part in enumerate(turn.parts):
        while left and left[0].place is not None and left[0].place <= index:
            ordered.append(left.pop(0))
        ordered.append(part)
    return [*ordered, *left]


class _TurnBuilder:
    """The turns so far, and the reply whose results are still being collected."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.collecting_results = False
        self._parts: tuple[Part, ...] = ()
        self._calls: tuple[ToolCall, ...] = ()
        self._pending: dict[str, str] = {}  # tool names by call id, for calls without a result
        self._results: list[ToolResult] = []

    def reply(self, parts: tuple[Part, ...], calls: tuple[ToolCall, ...]) -> None:
        self._parts += parts
        self._calls += calls
        for call in calls:
            self._pending[call.id] = call.name

    def awaits_all(self, calls: tuple[ToolCall, ...]) -> bool:
        return all(call.id in self._pending for call in calls)

    def add_results(self, results: Iterable[ToolResult]) -> None:
        self.collecting_results = True
        for result in results:
            if result.call_id in self._pending:
                name = self._pending.pop(result.call_id)
                self._results.append(result if result.name == name else replace(result, name=name))

    def close(self) -> None:
        if self._parts or self._calls:
            self.turns.append(AssistantTurn(self._parts, self._calls))
        missing = [ToolResult(call_id, "error", NO_RESULT, name=name) for call_id, name in self._pending.items()]
        if results := (*self._results, *missing):
            self.turns.append(ResultsTurn(results))
        self.collecting_results = False
        self._parts, self._calls, self._pending, self._results = (), (), {}, []
