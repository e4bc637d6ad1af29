"""Conversations, their messages, runs, steps, traces and approvals; and the health check."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from holdfast.api.openapi.shapes.common import Authors, EventStream, Json, Timestamp
from holdfast.api.openapi.shapes.messages import (
    AgentResponse,
    CancelledRuns,
    Compaction,
    ContextWindow,
    FoundMessage,
    Message,
    ToolCall,
)


class Conversation(Authors):
    id: str
    agent_id: str
    summary: str | None
    description: str | None
    archived: bool
    archived_at: Timestamp | None
    hidden: bool | None
    context_window_limit: int | None
    in_context_message_ids: list[str]
    model: str | None
    model_settings: Json | None
    last_message_at: Timestamp | None


class Run(TypedDict):
    id: str
    status: Literal["created", "running", "completed", "failed", "cancelled"]
    created_at: Timestamp
    completed_at: Timestamp | None
    agent_id: str
    conversation_id: str | None
    base_template_id: str | None
    background: bool | None
    metadata: Json
    request_config: Json | None
    stop_reason: str | None
    callback_url: str | None
    callback_sent_at: Timestamp | None
    callback_status_code: int | None
    callback_error: str | None
    ttft_ns: int | None
    total_duration_ns: int | None


class RunUsage(TypedDict):
    completion_tokens: int
    prompt_tokens: int
    total_tokens: int
    prompt_tokens_details: Json | None
    completion_tokens_details: Json | None


class Step(RunUsage):
    id: str
    agent_id: str | None
    run_id: str | None
    call_type: str | None
    status: str | None
    stop_reason: str | None
    model: str | None
    model_handle: str | None
    model_endpoint: str | None
    provider_name: str | None
    provider_category: str | None
    provider_id: str | None
    context_window_limit: int | None
    cached_input_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    failed_models: list[Json]
    error_type: str | None
    error_data: Json | None
    feedback: Literal["positive", "negative"] | None
    messages: list[Json]
    origin: str | None
    project_id: str | None
    request_id: str | None
    tags: list[str]
    tid: str | None
    trace_id: str | None


class StepMetrics(TypedDict):
    """Times in nanoseconds."""

    id: str
    organization_id: str | None
    agent_id: str | None
    run_id: str | None
    project_id: str | None
    provider_id: str | None
    base_template_id: str | None
    template_id: str | None
    step_start_ns: int | None
    llm_request_start_ns: int | None
    llm_request_ns: int | None
    tool_execution_ns: int | None
    step_ns: int | None


class RunMetrics(TypedDict):
    """Times in nanoseconds."""

    id: str
    organization_id: str | None
    agent_id: str | None
    project_id: str | None
    base_template_id: str | None
    run_start_ns: int | None
    run_ns: int | None
    ttft_ns: int | None
    num_steps: int | None
    tools_used: list[str] | None
    steps: list[StepMetrics]


class Trace(Authors):
    """The request that a model was sent and its response."""

    id: str
    request_json: Any
    response_json: Any
    step_id: str | None
    run_id: str | None
    agent_id: str | None
    org_id: str | None
    attempt: int
    call_type: str | None
    source: str | None
    compaction_settings: Json | None
    billing_context: Json | None
    agent_tags: NotRequired[list[str]]
    latency_ms: NotRequired[float | None]
    llm_config: NotRequired[Json | None]


class Decision(TypedDict):
    kind: str
    decided_by: str | None
    decided_at: Timestamp | None
    reason: str | None
    arguments: Any


class Approval(TypedDict):
    """One tool call that waits, or waited, for a person."""

    id: str
    status: Literal["waiting", "decided"]
    outcome_unknown: bool
    agent_id: str
    agent_name: str | None
    conversation_id: str | None
    run_id: str
    step_id: str | None
    message_id: str | None
    tool_call: ToolCall
    arguments_digest: str
    client_side: bool
    asked_at: Timestamp
    age_seconds: float
    expires_at: Timestamp | None
    on_expiry: str | None
    policy_notes: list[Any]
    decision: Decision | None


class Decided(TypedDict):
    approval: Approval
    run: Run


class Allowance(TypedDict):
    id: str
    agent_id: str
    conversation_id: str | None
    tool_name: str
    arguments_digest: str | None
    created_at: Timestamp
    created_by_id: str | None


class Health(TypedDict):
    """`version` is that of the Letta server whose API this is; `holdfast` is the version of this server."""

    version: str
    status: str
    holdfast: str
    tools: Json | None


_AGENT = "/v1/agents/{agent_id}"
_CONVERSATION = "/v1/conversations/{conversation_id}"
_RUN = "/v1/runs/{run_id}"
_STEP = "/v1/steps/{step_id}"

RESPONSES: dict[str, Any] = {
    "GET /v1/health": Health,
    "GET /v1/ready": Health,
    f"POST {_AGENT}/messages": AgentResponse,
    f"POST {_AGENT}/messages/stream": EventStream,
    f"POST {_AGENT}/messages/async": Run,
    f"POST {_AGENT}/messages/preview-raw-payload": Json,
    f"GET {_AGENT}/messages": list[Message],
    f"POST {_AGENT}/messages/cancel": CancelledRuns,
    f"POST {_AGENT}/summarize": Compaction,
    f"POST {_AGENT}/recompile": str,
    f"POST {_AGENT}/system-prompt/recompile": str,
    f"GET {_AGENT}/context": ContextWindow,
    "GET /v1/messages": list[Message],
    "POST /v1/messages/search": list[FoundMessage],
    "POST /v1/agents/messages/search": list[FoundMessage],
    "GET /v1/messages/{message_id}": list[Message],
    "GET /v1/conversations": list[Conversation],
    "POST /v1/conversations": Conversation,
    f"GET {_CONVERSATION}": Conversation,
    f"PATCH {_CONVERSATION}": Conversation,
    f"DELETE {_CONVERSATION}": None,
    f"POST {_CONVERSATION}/fork": Conversation,
    f"POST {_CONVERSATION}/messages": AgentResponse,
    f"GET {_CONVERSATION}/messages": list[Message],
    f"POST {_CONVERSATION}/messages/preview-raw-payload": Json,
    f"POST {_CONVERSATION}/stream": EventStream,
    f"POST {_CONVERSATION}/cancel": CancelledRuns,
    f"GET {_CONVERSATION}/context": ContextWindow,
    f"POST {_CONVERSATION}/compact": Compaction,
    f"POST {_CONVERSATION}/recompile": str,
    "GET /v1/runs": list[Run],
    "GET /v1/_internal_runs": list[Run],
    "GET /v1/runs/active": list[Run],
    f"GET {_RUN}": Run,
    f"DELETE {_RUN}": Run,
    f"GET {_RUN}/messages": list[Message],
    f"GET {_RUN}/steps": list[Step],
    f"GET {_RUN}/usage": RunUsage,
    f"GET {_RUN}/metrics": RunMetrics,
    f"GET {_RUN}/trace": list[Trace],
    f"POST {_RUN}/stream": EventStream,
    "GET /v1/steps": list[Step],
    f"GET {_STEP}": Step,
    f"GET {_STEP}/messages": list[Message],
    f"GET {_STEP}/metrics": StepMetrics,
    f"GET {_STEP}/trace": Trace | None,
    "GET /v1/telemetry/{step_id}": Trace | None,
    f"PATCH {_STEP}/feedback": Step,
    "GET /v1/approvals": list[Approval],
    "GET /v1/approvals/stream": EventStream,
    "GET /v1/approvals/allowances": list[Allowance],
    "DELETE /v1/approvals/allowances/{allowance_id}": None,
    "GET /v1/approvals/{approval_id}": Approval,
    "POST /v1/approvals/{approval_id}": Decided,
}
