"""The pure part of compaction: where a context may be cut, which messages stay, and the texts for the summary.

`engine.run.compaction` uses it to carry out a compaction. A cut never separates a tool call from its return, a reply
from its approval request, or messages that a user sent together: it is only possible where every earlier call has its
return. The system message and the newest exchange always stay. The newest exchange begins with the user's last
messages; if the agent has worked so long since then that this alone is too large, it begins with a later step, at the
latest the newest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from holdfast.core.conversation.messages import (
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
from holdfast.core.state import CompactionMethod
from holdfast.core.tools.return_clipping import clip

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
RETURN_CHARS = 2_000  # of one tool return in the transcript for the summary
LAST_WORDS_CHARS = 2_000  # of the user's last message, where no summary could be made
OMITTED = "[earlier part left out]\n"


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """How a context is made smaller. The defaults are those of the Letta API. `sliding_window_percentage` is the share
    of the context that stays; `clip_chars` is the maximum length of a summary."""

    mode: Mode = "sliding_window"
    model: str | None = None
    model_settings: Mapping[str, Any] | None = None
    prompt: str | None = None
    prompt_acknowledgement: bool = False
    clip_chars: int | None = 50_000
    sliding_window_percentage: float = 0.3

    @staticmethod
    def of(*layers: Mapping[str, Any] | None) -> CompactionSettings:
        """Merge settings from several layers; later layers win: the agent's, the request's."""
        given: dict[str, Any] = {}
        for layer in layers:
            given |= {
                name: v for name, v in (layer or {}).items() if name in _KNOWN and (v is not None or name in _NULLABLE)
            }
        return CompactionSettings(**given)

    @property
    def by_itself(self) -> bool:
        """The agent's own model writes the summary, with the conversation as its prompt."""
        return self.mode.startswith("self_compact")

    @property
    def keeps_a_window(self) -> bool:
        return self.mode.endswith("sliding_window")


_KNOWN = {field.name for field in fields(CompactionSettings)}
_NULLABLE = {"model", "model_settings", "prompt", "clip_chars"}  # a null overrides the earlier layers


def cut_points(context: Sequence[Body]) -> list[int]:
    """Indexes before which the context may be cut; never right before or right after the system message."""
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
    """Whether a step or a group of user messages begins here."""
    if isinstance(body, UserBody | SystemBody):
        return not isinstance(before, UserBody | SystemBody)
    return isinstance(body, AssistantBody | ApprovalRequestBody)


def choose_cut(context: Sequence[Body], sizes: Sequence[int], keep: int, *, exchange_only: bool) -> int | None:
    """The index of the first message to keep, so that about `keep` tokens stay; None if nothing can be removed.

    `exchange_only` keeps the newest exchange and nothing before it. At least the newest step stays.
    """
    points = cut_points(context)
    first = _newest_exchange(context, points) if exchange_only else 0
    if exchange_only and first not in points and sum(sizes[first:]) <= keep:
        return None  # the context has only this exchange, and it is small enough to stay
    for point in (point for point in points if point >= first):
        if sum(sizes[point:]) <= keep or point == points[-1]:
            return point if any(not isinstance(body, SummaryBody) for body in context[1:point]) else None
    return None


def _newest_exchange(context: Sequence[Body], points: Sequence[int]) -> int:
    """The index of the user's last group of messages; it may follow the system message directly."""
    user_points = [
        point for point in (1, *points) if point < len(context) and isinstance(context[point], UserBody | SystemBody)
    ]
    return user_points[-1] if user_points else 1


def keep_share(settings: CompactionSettings, method: CompactionMethod) -> tuple[float, bool]:
    """The share of the context that may stay, and whether only the newest exchange may stay."""
    match method:
        case "asked":
            return settings.sliding_window_percentage, not settings.keeps_a_window
        case "all":
            return settings.sliding_window_percentage, True
        case "truncate":
            return settings.sliding_window_percentage / 2, True


# ---- the summary's input and its text in the context ----------------------------------------------------------------


def transcript(dropped: Sequence[Body], most_chars: int) -> str:
    """The messages as a text to be summarised. The oldest part is left out if it is longer than `most_chars`."""
    text = "\n".join(line_of(body) for body in dropped)
    return text if len(text) <= most_chars else OMITTED + text[-most_chars:]


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


def without_a_summary(dropped: Sequence[Body]) -> str:
    """A substitute for a summary that could not be made: the number of removed messages and the user's last one."""
    text = f"{len(dropped)} earlier messages of this conversation are no longer shown; they could not be summarised."
    earlier = next((body.text for body in dropped if isinstance(body, SummaryBody)), None)
    asked = [body for body in dropped if isinstance(body, UserBody)]
    if earlier is not None:
        text += f"\n\nBefore them:\n{clip(earlier, LAST_WORDS_CHARS)}"
    if asked:
        text += f"\n\nThe last thing that the user said in them:\n{clip(plain_text(asked[-1].parts), LAST_WORDS_CHARS)}"
    return text


def clip_summary(summary: str, most_chars: int | None) -> str:
    return summary if most_chars is None else clip(summary, most_chars)
