"""Agents, and the models and providers that they use."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from holdfast.api.openapi.shapes.common import Authors, Done, Json, Timestamp
from holdfast.api.openapi.shapes.messages import Message
from holdfast.api.openapi.shapes.tools_and_blocks import Block, Memory, Tool


class EmbeddingConfig(TypedDict):
    embedding_endpoint_type: str
    embedding_endpoint: str | None
    embedding_model: str
    embedding_dim: int | None
    embedding_chunk_size: int | None
    handle: str | None
    batch_size: int
    azure_endpoint: str | None
    azure_version: str | None
    azure_deployment: str | None


class EmbeddingModel(EmbeddingConfig):
    name: str
    display_name: str
    provider_name: str
    provider_type: str
    model_type: str


class LlmConfig(TypedDict):
    model: str
    display_name: str
    model_endpoint_type: str
    model_endpoint: str | None
    provider_name: str | None
    provider_category: str | None
    model_wrapper: str | None
    context_window: int
    put_inner_thoughts_in_kwargs: bool
    handle: str | None
    temperature: float | None
    max_tokens: int | None
    enable_reasoner: bool
    reasoning_effort: str | None
    max_reasoning_tokens: int
    effort: str | None
    frequency_penalty: float | None
    compatibility_type: str | None
    verbosity: str | None
    tier: str | None
    parallel_tool_calls: bool | None
    response_format: Json | None
    strict: bool
    return_logprobs: bool
    top_logprobs: int | None
    return_token_ids: bool
    tool_call_parser: str | None


class Model(LlmConfig):
    name: str
    provider_type: str
    model_type: str
    max_context_window: int


class Secret(Authors):
    id: str
    agent_id: str
    key: str
    value: str
    value_enc: str | None
    description: str | None


class Agent(Authors):
    """An agent. Its relationships (blocks, tools, tags, secrets, …) are empty unless the request includes them."""

    id: str
    name: str
    tool_rules: list[Json]
    approval_policies: list[Json]
    approval_expiry: Json | None
    message_ids: list[str]
    system: str
    agent_type: str
    llm_config: LlmConfig
    embedding_config: Json | None
    model: str
    embedding: str | None
    model_settings: Json
    fallback_models: list[Json]
    compaction_settings: Json
    budget: Json | None
    response_format: Json | None
    description: str | None
    metadata: Json | None
    memory: Memory
    blocks: list[Block]
    tools: list[Tool]
    sources: list[Json]
    tags: list[str]
    tool_exec_environment_variables: list[Secret]
    secrets: list[Secret]
    identity_ids: list[str]
    identities: list[Json]
    pending_approval: Message | None
    multi_agent_group: Json | None
    managed_group: Json | None
    project_id: str | None
    template_id: str | None
    base_template_id: str | None
    deployment_id: str | None
    entity_id: str | None
    message_buffer_autoclear: bool
    enable_sleeptime: bool | None
    last_run_completion: Timestamp | None
    last_run_duration_ms: int | None
    last_stop_reason: str | None
    timezone: str | None
    max_files_open: int
    per_file_view_window_char_limit: int
    hidden: bool | None


class Provider(Authors):
    """Keys are accepted and never returned."""

    id: str
    name: str
    provider_type: str
    provider_category: str
    api_key: str | None
    access_key: str | None
    base_url: str | None
    region: str | None
    api_version: str | None
    organization_id: str | None
    last_synced: Timestamp | None


_AGENT = "/v1/agents/{agent_id}"

RESPONSES: dict[str, Any] = {
    "GET /v1/agents": list[Agent],
    "POST /v1/agents": Agent,
    "GET /v1/agents/count": int,
    f"GET {_AGENT}": Agent,
    f"PATCH {_AGENT}": Agent,
    f"DELETE {_AGENT}": Done,
    # A 1.x SDK gets null, an older client the agent.
    f"PATCH {_AGENT}/tools/attach/{{tool_id}}": Agent | None,
    f"PATCH {_AGENT}/tools/detach/{{tool_id}}": Agent | None,
    f"PATCH {_AGENT}/tools/approval/{{tool_name}}": Agent | None,
    f"PATCH {_AGENT}/core-memory/blocks/attach/{{block_id}}": Agent,
    f"PATCH {_AGENT}/core-memory/blocks/detach/{{block_id}}": Agent,
    f"PATCH {_AGENT}/archives/attach/{{archive_id}}": None,
    f"PATCH {_AGENT}/archives/detach/{{archive_id}}": None,
    f"PATCH {_AGENT}/reset-messages": Agent,
    "GET /v1/blocks/{block_id}/agents": list[Agent],
    "GET /v1/archives/{archive_id}/agents": list[Agent],
    "GET /v1/models": list[Model],
    "GET /v1/models/embedding": list[EmbeddingModel],
    "GET /v1/providers": list[Provider],
    "POST /v1/providers": Provider,
    "POST /v1/providers/check": Done,
    "GET /v1/providers/{provider_id}": Provider,
    "PATCH /v1/providers/{provider_id}": Provider,
    "DELETE /v1/providers/{provider_id}": Done,
    "POST /v1/providers/{provider_id}/check": Done,
    "PATCH /v1/providers/{provider_id}/refresh": Provider,
}
