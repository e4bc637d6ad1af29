"""Compaction, the pure part: where a context may be cut, and what the summariser is told.

A cut never parts a tool call from its return: it falls only in front of a message that begins something, that is a
user's message or the first message of a step.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.messages import (
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Message,
    SummaryBody,
    SystemBody,
    ToolReturnsBody,
    UserBody,
    plain_text,
)

SUMMARY_PROMPT = """\
You keep an agent's long conversation short. Below is the older part of it, which the agent will no longer see.
Write a summary for the agent itself, in at most 500 words: what the user wants, what was decided and why, what was
done with which tools and what came of it, names, numbers and facts that may be needed again, and what is still open.
Write only the summary."""

CHARS_PER_TOKEN = 4


def cut_points(context: Sequence[Message]) -> list[int]:
    """Indexes before which the context may be cut; never 0, which is the system message."""
    points: list[int] = []
    for index in range(1, len(context)):
        body, before = context[index].body, context[index - 1].body
        match body:
            case UserBody():
                points.append(index)
            case AssistantBody():
                points.append(index)
            case ApprovalRequestBody() if not isinstance(before, AssistantBody):
                points.append(index)
            case _:
                pass
    return [point for point in points if point > 1]


def choose_cut(context: Sequence[Message], share: float | None) -> int:
    """The index from which messages stay. `share` of the context, by size, goes; None means all of it goes."""
    points = cut_points(context)
    if share is None or not points:
        return len(context)
    sizes = [size_of(message) for message in context]
    target = sum(sizes[1:]) * share
    gone = 0
    for index in range(1, len(context)):
        if index in points and gone >= target:
            return index
        gone += sizes[index]
    return points[-1]


def size_of(message: Message) -> int:
    return len(line_of(message)) + 8


def transcript(messages: Sequence[Message], clip_chars: int) -> str:
    """The messages as the summariser reads them, the oldest cut first if there are too many."""
    text = "\n".join(line_of(message) for message in messages)
    return text if len(text) <= clip_chars else f"[earlier part left out]\n{text[-clip_chars:]}"


def line_of(message: Message) -> str:
    body = message.body
    match body:
        case SystemBody(text=text):
            return f"system: {text}"
        case UserBody(parts=parts):
            return f"user: {plain_text(parts)}"
        case SummaryBody(text=text):
            return f"earlier summary: {text}"
        case AssistantBody(parts=parts, calls=calls) | ApprovalRequestBody(parts=parts, calls=calls):
            called = "".join(f"\n  calls {call.name}({call.arguments})" for call in calls)
            return f"agent: {plain_text(parts)}{called}"
        case ApprovalResponseBody():
            return "user answers the request for approval"
        case ToolReturnsBody(results=results):
            return "\n".join(f"  returned ({result.status}): {plain_text(result.content)}" for result in results)


def summary_text(summary: str) -> str:
    return f"The earlier part of this conversation is no longer shown. This is its summary:\n\n{summary}"


def estimate_tokens(messages: Sequence[Message]) -> int:
    return sum(size_of(message) for message in messages) // CHARS_PER_TOKEN
