"""How a context of messages becomes turns that any vendor accepts, before a word is translated.

Our messages are facts as they were stored; a vendor wants turns: a reply, then the results of exactly its calls,
then something new. The differences, all settled here so that each wire has only to translate:

- A reply with both allowed and gated calls is stored as an assistant message directly followed by an approval
  request. It was one reply, so it becomes one `AssistantTurn`.
- An approval response is not sent: the tool returns that follow it carry what came of it.
- A call without a result gets one that says so, and a result without its call is left out. The loop keeps history
  valid, so this is a second net: a vendor would refuse the whole conversation, for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.core.messages import (
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
    """A message that stands for itself: from the system, the user, or a summary."""

    body: SystemBody | UserBody | SummaryBody


class AssistantTurn(NamedTuple):
    """One reply, whole, whether it was stored as one message or two."""

    parts: tuple[Part, ...]
    calls: tuple[ToolCall, ...]


class ResultsTurn(NamedTuple):
    """What came of the calls of the reply before, each call having exactly one result, which bears its tool's name."""

    results: tuple[ToolResult, ...]


Turn = SpokenTurn | AssistantTurn | ResultsTurn


def turns(messages: Iterable[Message]) -> list[Turn]:
    """The turns of a context, in order."""
    gathering = _Gathering()
    for message in messages:
        match message.body:
            case AssistantBody(parts=parts, calls=calls):
                gathering.close()
                gathering.reply(parts, calls)
            case ApprovalRequestBody(calls=calls) if gathering.waits_for(calls):
                continue  # asked about again, because its outcome was lost: the model made the call once
            case ApprovalRequestBody(parts=parts, calls=calls):
                if gathering.settling:
                    gathering.close()
                gathering.reply(parts, calls)
            case ToolReturnsBody(results=results):
                gathering.settle(results)
            case ApprovalResponseBody():
                gathering.settle(())
            case SystemBody() | UserBody() | SummaryBody() as body:
                gathering.close()
                gathering.turns.append(SpokenTurn(body))
    gathering.close()
    return gathering.turns


def begins_a_turn(messages: Sequence[Message], index: int) -> bool:
    """Whether the turns before this message and those from it on can be made apart from each other."""
    match messages[index].body:
        case AssistantBody():
            return True
        case ApprovalRequestBody():
            return _nothing_waits_before(messages[:index])
        case _:
            return False


def _nothing_waits_before(messages: Sequence[Message]) -> bool:
    """Whether every call of the turn that is behind has its result, so that no request can belong to it."""
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
    """Parts and calls as the model gave them, for wires that keep them in one line."""
    line: list[Part | ToolCall] = []
    left = list(turn.calls)
    for index, part in enumerate(turn.parts):
        while left and left[0].place is not None and left[0].place <= index:
            line.append(left.pop(0))
        line.append(part)
    return [*line, *left]


class _Gathering:
    """The turns so far, and the reply whose results are still being collected."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.settling = False
        self._parts: tuple[Part, ...] = ()
        self._calls: tuple[ToolCall, ...] = ()
        self._waiting: dict[str, str] = {}  # names of tools by the ids of their calls
        self._results: list[ToolResult] = []

    def reply(self, parts: tuple[Part, ...], calls: tuple[ToolCall, ...]) -> None:
        self._parts += parts
        self._calls += calls
        for call in calls:
            self._waiting[call.id] = call.name

    def waits_for(self, calls: tuple[ToolCall, ...]) -> bool:
        return all(call.id in self._waiting for call in calls)

    def settle(self, results: Iterable[ToolResult]) -> None:
        self.settling = True
        for result in results:
            if result.call_id in self._waiting:
                name = self._waiting.pop(result.call_id)
                self._results.append(result if result.name == name else replace(result, name=name))

    def close(self) -> None:
        if self._parts or self._calls:
            self.turns.append(AssistantTurn(self._parts, self._calls))
        missing = [ToolResult(call_id, "error", NO_RESULT, name=name) for call_id, name in self._waiting.items()]
        if results := (*self._results, *missing):
            self.turns.append(ResultsTurn(results))
        self.settling = False
        self._parts, self._calls, self._waiting, self._results = (), (), {}, []
