"""Compaction, the pure part: where a context may be cut, what stays, and what a summariser is told.

A cut never parts a tool call from its return, a mixed reply from its approval request, or the messages that one user
sent together: it falls only where every call before it has its return. The system message and the newest exchange
always stay. The newest exchange begins with what the user said last; if the agent has worked so long since then that
this alone is too large, it begins with a later step, at the latest the newest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from holdfast.core.clipping import clip
from holdfast.core.messages import (
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Body,
    SummaryBody,
    SystemBody,
    ToolReturnsBody,
    UserBody,
    plain_text,
)
from holdfast.core.state import Way

Mode = Literal["all", "sliding_window", "self_compact_all", "self_compact_sliding_window"]

SUMMARY_PROMPT = """\
You keep an agent's long conversation short. Below is the older part of it, which the agent will no longer see.
Write a summary for the agent itself, in at most 500 words: what the user wants, what was decided and why, what was
done with which tools and what came of it, names, numbers and facts that may be needed again, and what is still open.
Write only the summary."""

SELF_PROMPT = """\
This conversation is about to be shortened: everything above will be replaced by what you write now. Do not call tools
and do not go on with the task. Write a summary for yourself, in at most 500 words: what the user wants, what was
decided and why, what you did with which tools and what came of it, names, numbers and facts that may be needed again,
what is still open and what you were about to do. Write only the summary."""

ACKNOWLEDGEMENT = "I understand. I will answer with the summary only, without greeting or remarks."
RETURN_CHARS = 2_000  # of one tool return in what the summariser reads
WORDS_CHARS = 2_000  # of what the user said last, where no summary could be made
EARLIER = "[earlier part left out]\n"


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """How a context is made smaller. The defaults are the contract's. `sliding_window_percentage` is the share of the
    context that stays; `clip_chars` is the most that a summary may have."""

    mode: Mode = "sliding_window"
    model: str | None = None
    model_settings: Mapping[str, Any] | None = None
    prompt: str | None = None
    prompt_acknowledgement: bool = False
    clip_chars: int | None = 50_000
    sliding_window_percentage: float = 0.3

    @staticmethod
    def of(*layers: Mapping[str, Any] | None) -> CompactionSettings:
        """Settings from several layers, later ones winning: the agent's, the request's."""
        said: dict[str, Any] = {}
        for layer in layers:
            said |= {
                name: v for name, v in (layer or {}).items() if name in _KNOWN and (v is not None or name in _NULL)
            }
        return CompactionSettings(**said)

    @property
    def by_itself(self) -> bool:
        """The agent's own model summarises the conversation as it knows it."""
        return self.mode.startswith("self_compact")

    @property
    def keeps_a_window(self) -> bool:
        return self.mode.endswith("sliding_window")


_KNOWN = {field.name for field in fields(CompactionSettings)}
_NULL = {"model", "model_settings", "prompt", "clip_chars"}  # here a null says something


def cut_points(context: Sequence[Body]) -> list[int]:
    """Indexes before which the context may be cut; never the system message or what stands right behind it."""
    points: list[int] = []
    unanswered: set[str] = set()
    for index, body in enumerate(context):
        if index > 1 and not unanswered and _begins(body, context[index - 1]):
            points.append(index)
        match body:
            case AssistantBody(calls=calls) | ApprovalRequestBody(calls=calls):
                unanswered |= {call.id for call in calls}
            case ToolReturnsBody(results=results):
                unanswered -= {result.call_id for result in results}
            case _:
                pass
    return points


def _begins(body: Body, before: Body) -> bool:
    """Whether something new begins here: a step, or what a user sent."""
    if isinstance(body, UserBody | SystemBody):
        return not isinstance(before, UserBody | SystemBody)
    return isinstance(body, AssistantBody | ApprovalRequestBody)


def choose_cut(context: Sequence[Body], sizes: Sequence[int], keep: int, *, exchange_only: bool) -> int | None:
    """The index from which messages stay, so that about `keep` tokens of them do; None if nothing can go.

    `exchange_only` keeps the newest exchange and nothing before it. What stays is never less than the newest step.
    """
    points = cut_points(context)
    first = _newest_exchange(context, points) if exchange_only else 0
    if exchange_only and first not in points and sum(sizes[first:]) <= keep:
        return None  # there is only this exchange, and it may stay
    for point in (point for point in points if point >= first):
        if sum(sizes[point:]) <= keep or point == points[-1]:
            return point if any(not isinstance(body, SummaryBody) for body in context[1:point]) else None
    return None


def _newest_exchange(context: Sequence[Body], points: Sequence[int]) -> int:
    """Where what the user said last begins; it may stand right behind the system message."""
    said = [
        point for point in (1, *points) if point < len(context) and isinstance(context[point], UserBody | SystemBody)
    ]
    return said[-1] if said else 1


def keep_share(settings: CompactionSettings, way: Way) -> tuple[float, bool]:
    """How much of the context may stay, as a share, and whether only the newest exchange may."""
    match way:
        case "asked":
            return settings.sliding_window_percentage, not settings.keeps_a_window
        case "all":
            return settings.sliding_window_percentage, True
        case "truncate":
            return settings.sliding_window_percentage / 2, True


# ---- what the summariser reads and what the agent reads afterwards --------------------------------------------------


def transcript(going: Sequence[Body], most_chars: int) -> str:
    """The messages as the summariser reads them, the oldest left out if there are too many."""
    text = "\n".join(line_of(body) for body in going)
    return text if len(text) <= most_chars else EARLIER + text[-most_chars:]


def line_of(body: Body) -> str:
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
            return "\n".join(f"  returned ({r.status}): {clip(plain_text(r.content), RETURN_CHARS)}" for r in results)


def summary_text(summary: str) -> str:
    return f"The earlier part of this conversation is no longer shown. This is its summary:\n\n{summary}"


def without_a_summary(going: Sequence[Body]) -> str:
    """What stands for messages that could not be summarised: how many there were, and what the user wanted last."""
    text = f"{len(going)} earlier messages of this conversation are no longer shown; they could not be summarised."
    earlier = next((body.text for body in going if isinstance(body, SummaryBody)), None)
    asked = [body for body in going if isinstance(body, UserBody)]
    if earlier is not None:
        text += f"\n\nBefore them:\n{clip(earlier, WORDS_CHARS)}"
    if asked:
        text += f"\n\nThe last thing that the user said in them:\n{clip(plain_text(asked[-1].parts), WORDS_CHARS)}"
    return text


def clip_summary(summary: str, most_chars: int | None) -> str:
    return summary if most_chars is None else clip(summary, most_chars)
