"""Messages in all their types, the response to a message, and the context window."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from holdfast.api.openapi.shapes.common import Json, Timestamp

ContentPart = Json
Content = str | list[ContentPart]


class _Message(TypedDict):
    id: str
    date: Annotated[str, Field(examples=["2026-01-31T12:00:00+00:00"])]
    name: str | None
    otid: str | None
    sender_id: str | None
    step_id: str | None
    is_err: bool | None
    seq_id: int | None
    run_id: str | None
    interrupted: NotRequired[bool]


class SystemMessage(_Message):
    message_type: Literal["system_message"]
    content: str


class UserMessage(_Message):
    message_type: Literal["user_message"]
    content: Content


class AssistantMessage(_Message):
    message_type: Literal["assistant_message"]
    content: Content


class ReasoningMessage(_Message):
    message_type: Literal["reasoning_message"]
    source: str
    reasoning: str
    signature: str | None


class HiddenReasoningMessage(_Message):
    message_type: Literal["hidden_reasoning_message"]
    state: str
    hidden_reasoning: str | None


class ToolCall(TypedDict):
    name: str
    arguments: str
    tool_call_id: str


class ToolCallMessage(_Message):
    message_type: Literal["tool_call_message"]
    tool_call: ToolCall
    tool_calls: list[ToolCall]


class ApprovalRequestMessage(_Message):
    message_type: Literal["approval_request_message"]
    tool_call: ToolCall
    tool_calls: list[ToolCall]


class ToolReturn(TypedDict):
    type: Literal["tool"]
    tool_return: Content
    status: Literal["success", "error"]
    tool_call_id: str
    stdout: list[str] | None
    stderr: list[str] | None
    isolation_tier: NotRequired[str | int]


class ToolReturnMessage(_Message):
    message_type: Literal["tool_return_message"]
    tool_return: str
    status: Literal["success", "error"]
    tool_call_id: str
    stdout: list[str] | None
    stderr: list[str] | None
    isolation_tier: NotRequired[str | int]
    tool_returns: list[ToolReturn]


class ApprovalAnswer(TypedDict):
    type: Literal["approval"]
    tool_call_id: str
    approve: bool
    reason: str | None
    arguments: NotRequired[str]


class ApprovalResponseMessage(_Message):
    message_type: Literal["approval_response_message"]
    approvals: list[ApprovalAnswer | ToolReturn]
    approve: bool | None
    approval_request_id: str | None
    reason: str | None


class SummaryMessage(_Message):
    """Sent by runs whose request has `include_compaction_messages`."""

    message_type: Literal["summary_message"]
    summary: str
    compaction_stats: Json | None


class EventMessage(_Message):
    """Sent by runs whose request has `include_compaction_messages`."""

    message_type: Literal["event_message"]
    event_type: str
    event_data: Json


Message = Annotated[
    SystemMessage
    | UserMessage
    | AssistantMessage
    | ReasoningMessage
    | HiddenReasoningMessage
    | ToolCallMessage
    | ToolReturnMessage
    | ApprovalRequestMessage
    | ApprovalResponseMessage
    | SummaryMessage
    | EventMessage,
    Field(discriminator="message_type"),
]


class StopReason(TypedDict):
    message_type: Literal["stop_reason"]
    stop_reason: str
    budget: NotRequired[Json]


class Usage(TypedDict):
    message_type: Literal["usage_statistics"]
    completion_tokens: int
    prompt_tokens: int
    total_tokens: int
    step_count: int
    run_ids: list[str] | None
    cached_input_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    context_tokens: int | None


class AgentResponse(TypedDict):
    """What the agent produced in one turn. With `streaming`, the same comes as a stream of server-sent events."""

    messages: list[Message]
    stop_reason: StopReason | None
    usage: Usage
    logprobs: NotRequired[Json | None]
    turns: NotRequired[list[Json] | None]


class InternalMessage(TypedDict):
    """A message in the form of roles and content, as the model is sent it."""

    id: str
    agent_id: str | None
    created_at: Timestamp | None
    run_id: str | None
    step_id: str | None
    otid: str | None
    name: str | None
    sender_id: str | None
    group_id: str | None
    role: str
    content: list[ContentPart] | None
    tool_calls: NotRequired[list[Json] | None]
    tool_returns: NotRequired[list[ToolReturn]]


class ContextWindow(TypedDict):
    """What the model would read now, and how many tokens each part takes."""

    context_window_size_max: int
    context_window_size_current: int
    num_messages: int
    num_archival_memory: int
    num_recall_memory: int
    num_tokens_external_memory_summary: int
    external_memory_summary: str
    num_tokens_system: int
    system_prompt: str
    num_tokens_core_memory: int
    core_memory: str
    num_tokens_memory_filesystem: int
    memory_filesystem: str | None
    num_tokens_tool_usage_rules: int
    tool_usage_rules: str | None
    num_tokens_directories: int
    directories: str | None
    num_tokens_summary_memory: int
    summary_memory: str | None
    num_tokens_functions_definitions: int
    functions_definitions: list[Json]
    num_tokens_messages: int
    messages: list[InternalMessage]


class Compaction(TypedDict):
    summary: str | None
    num_messages_before: int
    num_messages_after: int


class FoundMessage(TypedDict):
    message_id: str
    message_type: str
    content: Content | None
    created_at: Timestamp
    agent_id: str | None
    conversation_id: str | None


CancelledRuns = dict[str, str]  # by run id

# Besides the JSON here, these endpoints stream if the request asks for it.
STREAMING = frozenset({"POST /v1/agents/{agent_id}/messages", "POST /v1/conversations/{conversation_id}/messages"})
