"""The types of stored messages: a closed union of bodies, and the envelope `Message` around a body.

A *body* is the content (user message, model reply, approval request, tool returns …); the envelope `Message` adds the
id, the order and the origin. A stored body never changes, with one exception: the system message is compiled from the
agent's prompt and memory, so it is rewritten when these change.

`core.loop` decides with bodies, `core.conversation.wire_messages` converts them for clients,
`core.conversation.message_codec` for storage, and each provider for its vendor.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

# ---- parts of a message -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """Text. `signature` is the vendor's signature of it; only Gemini signs text."""

    text: str
    signature: str | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """An image, by URL or as base64 in `data`; with `data`, `media_type` is set."""

    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Readable reasoning of the model. `signature` must be sent back to the vendor unchanged.

    `origin` is the provider type that signed it: no vendor accepts another's signature. `id` is the vendor's own id of
    the reasoning, if it has one.
    """

    text: str
    signature: str | None = None
    origin: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class HiddenReasoning:
    """Redacted or encrypted reasoning, which is sent back to the vendor unchanged."""

    data: str
    origin: str | None = None
    id: str | None = None


Part = Text | Image | Reasoning | HiddenReasoning


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in a model reply. `arguments` is the model's JSON text, not yet validated, with the arguments that
    tool rules fill in.

    `place` is the number of parts of the reply before it; None, the usual case, if it comes after all parts.
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
    """The result of one tool call. `tier` is the sandbox's isolation tier, if the tool ran in a sandbox."""

    call_id: str
    status: ReturnStatus
    content: str | tuple[Text | Image, ...]
    stdout: tuple[str, ...] | None = None
    stderr: tuple[str, ...] | None = None
    name: str | None = None
    tier: str | None = None


# ---- answers to waiting calls -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Approval:
    """Approve or deny one call. In the legacy format `tool_call_id` is the message id of the approval request.

    With `arguments` the call is approved with these arguments instead of the model's.
    """

    tool_call_id: str
    approve: bool
    reason: str | None = None
    arguments: str | None = None


Answer = Approval | ToolResult


# ---- bodies -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SystemBody:
    text: str


@dataclass(frozen=True, slots=True)
class UserBody:
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class AssistantBody:
    """One model reply. `interrupted` marks a reply that a cancel cut off; the part that the user saw is kept."""

    parts: tuple[Part, ...]
    calls: tuple[ToolCall, ...] = ()
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class ApprovalRequestBody:
    """The calls of a reply that wait for a person. If the reply has no allowed call, its text is stored here too."""

    calls: tuple[ToolCall, ...]
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalResponseBody:
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class ToolReturnsBody:
    """All results of one step, in the order of the Letta API: given by the client, denied, executed."""

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
    """The summary that replaces compacted messages in the context."""

    text: str
    stats: CompactionStats


Body = (
    SystemBody | UserBody | AssistantBody | ApprovalRequestBody | ApprovalResponseBody | ToolReturnsBody | SummaryBody
)


@dataclass(frozen=True, slots=True)
class Message:
    """A stored body with its id and origin. `seq` orders the messages of a conversation."""

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
    """A message to be stored. The engine gives it an id unless it already has one.

    Without `in_context` it is added to the history only, because the model reads an equal message already."""

    body: Body
    id: str | None = None
    step_id: str | None = None
    otid: str | None = None
    name: str | None = None
    sender_id: str | None = None
    group_id: str | None = None
    in_context: bool = True


def plain_text(content: str | tuple[Part, ...]) -> str:
    """The text of a content, with a placeholder for each image; for formats and fields that take only text."""
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
