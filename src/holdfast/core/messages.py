"""Messages: the stored facts of a conversation, as a closed union of bodies inside one envelope.

A *body* says what happened (the user spoke, the model replied, a human was asked, tools returned …); the
envelope `Message` adds identity, order and provenance. Bodies never change once written, with one exception:
the system message is compiled from the agent's prompt and memory, so it is rewritten when those change.

Everything else reads from here: `core.loop` decides over bodies, `core.outward` shows them to clients,
`core.codec` stores them, and each provider translates them to its vendor's wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

# ---- parts: what a message can hold -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """Words. `signature` is the vendor's seal on them, for those that seal words (Gemini)."""

    text: str
    signature: str | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """An image by URL or by bytes; `data` is base64 and then `media_type` is known."""

    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning the model showed us. `signature` must go back to the vendor untouched.

    `origin` is the wire that signed it: no vendor takes another's seal. `id` is the vendor's own name of it, if any.
    """

    text: str
    signature: str | None = None
    origin: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class HiddenReasoning:
    """Reasoning we hold but may not read (redacted or encrypted); it goes back to the vendor as it came."""

    data: str
    origin: str | None = None
    id: str | None = None


Part = Text | Image | Reasoning | HiddenReasoning


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A requested effect, as the model wrote it: `arguments` is its JSON text, not yet trusted.

    `place` is how many parts of the reply came before it; None after all of them, as nearly always.
    """

    id: str
    name: str
    arguments: str
    signature: str | None = None
    origin: str | None = None
    place: int | None = None


ReturnStatus = Literal["success", "error"]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of one tool call. `tier` is how well the tool was confined, if it ran in a sandbox."""

    call_id: str
    status: ReturnStatus
    content: str | tuple[Text | Image, ...]
    stdout: tuple[str, ...] | None = None
    stderr: tuple[str, ...] | None = None
    name: str | None = None
    tier: str | None = None


# ---- answers: what a human said to a call -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Approval:
    """Approve or deny one call. `tool_call_id` may be the request's message id (the legacy single shape).

    With `arguments` the call is approved with these instead of the ones the model asked for.
    """

    tool_call_id: str
    approve: bool
    reason: str | None = None
    arguments: str | None = None


Answer = Approval | ToolResult


# ---- bodies: what happened ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SystemBody:
    text: str


@dataclass(frozen=True, slots=True)
class UserBody:
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class AssistantBody:
    """One model reply. `interrupted` marks a reply that was cut off by a cancel and kept as the user saw it."""

    parts: tuple[Part, ...]
    calls: tuple[ToolCall, ...] = ()
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class ApprovalRequestBody:
    """The calls of a reply that wait for a human. It owns the reply's text when no other call is allowed."""

    calls: tuple[ToolCall, ...]
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalResponseBody:
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class ToolReturnsBody:
    """All results of one step, in the contract's order: client-given, denied, executed."""

    results: tuple[ToolResult, ...]


@dataclass(frozen=True, slots=True)
class CompactionStats:
    trigger: str
    context_tokens_before: int | None
    context_tokens_after: int | None
    context_window: int
    messages_count_before: int
    messages_count_after: int


@dataclass(frozen=True, slots=True)
class SummaryBody:
    """What stands in the context for messages that were compacted away."""

    text: str
    stats: CompactionStats


Body = (
    SystemBody | UserBody | AssistantBody | ApprovalRequestBody | ApprovalResponseBody | ToolReturnsBody | SummaryBody
)


@dataclass(frozen=True, slots=True)
class Message:
    """A body with its place in the world. `seq` orders messages inside their conversation."""

    id: str
    agent_id: str
    conversation_id: str
    seq: int
    created_at: datetime
    body: Body
    run_id: str | None = None
    step_id: str | None = None
    otid: str | None = None
    name: str | None = None
    sender_id: str | None = None
    group_id: str | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that `decide` wants written. The driver gives it identity unless it already has one."""

    body: Body
    id: str | None = None
    step_id: str | None = None
    otid: str | None = None
    name: str | None = None
    sender_id: str | None = None
    group_id: str | None = None


def plain_text(content: str | tuple[Part, ...]) -> str:
    """The words of a content, images named in place; for wires and fields that carry only text."""
    if isinstance(content, str):
        return content
    words: list[str] = []
    for part in content:
        match part:
            case Text(text=text):
                words.append(text)
            case Image():
                words.append("[Image omitted]")
            case Reasoning() | HiddenReasoning():
                pass
    return "\n".join(words)
