"""The stored records as values: agents, tools, blocks, archives, conversations, providers, runs and steps.

`records/` creates and changes them, `storage/` stores them, `api/` returns them to clients. Fields that only clients
use are kept in `metadata` or as plain JSON; the loop never reads those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from holdfast.core.lifecycle import RunStatus, StopReason
from holdfast.core.model import Usage
from holdfast.core.state import OnUnknown

Json = Mapping[str, Any]
McpKind = Literal["streamable_http", "sse", "stdio"]
CallType = Literal["agent_step", "summarization"]  # the purpose of a model call, in the Letta API's words


@dataclass(frozen=True, slots=True)
class Actor:
    """The authenticated sender of a request. All records are looked up inside the actor's organisation."""

    org_id: str
    user_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """When a record was created and changed, and by whom; every record has these fields."""

    created_at: datetime
    updated_at: datetime
    created_by: str | None = None
    updated_by: str | None = None


# The types of the tools that the server itself runs, without secrets.
BUILT_IN_TYPES = frozenset(
    {
        "letta_core",
        "letta_memory_core",
        "letta_multi_agent_core",
        "letta_sleeptime_core",
        "letta_voice_sleeptime_core",
        "letta_builtin",
        "letta_files_core",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Stamp):
    id: str
    org_id: str
    name: str
    tool_type: str = "custom"
    description: str | None = None
    source_code: str | None = None
    source_type: str = "python"
    json_schema: Json | None = None
    args_json_schema: Json | None = None
    tags: tuple[str, ...] = ()
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool = False
    return_char_limit: int = 50_000
    pip_requirements: tuple[Json, ...] | None = None
    npm_requirements: tuple[Json, ...] | None = None
    metadata: Json | None = None
    project_id: str | None = None
    # None: not set, see `core.step_calls.on_unknown_of`. The default is "ask" all the same: in rows of versions where
    # every tool had it, the value is left out, whether it was set or not.
    on_unknown: OnUnknown | None = "ask"
    approval_expiry: Json | None = None
    mcp: Json | None = None  # which server offers it: server_id, tool_name there, and the server's revision

    @property
    def gets_secrets(self) -> bool:
        return self.tool_type not in BUILT_IN_TYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer(Stamp):
    """An MCP server, which offers tools. Values of `auth_token`, `custom_headers` and `env` are encrypted.

    `revision` changes when the address, the command or a credential changes; that makes earlier approvals of its tools
    void. `trouble` says why its tools could not be listed the last time.
    """

    id: str
    org_id: str
    server_name: str
    kind: McpKind
    revision: str
    server_url: str | None = None
    auth_header: str | None = None
    auth_token: str | None = None
    custom_headers: Mapping[str, str] | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Stamp):
    id: str
    org_id: str
    label: str
    value: str
    limit: int = 100_000
    description: str | None = None
    read_only: bool = False
    hidden: bool | None = None
    is_template: bool = False
    metadata: Json | None = None
    tags: tuple[str, ...] = ()
    project_id: str | None = None
    template_name: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    entity_id: str | None = None
    preserve_on_migration: bool | None = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive(Stamp):
    """A collection of passages that its agents search and add to.

    An archive that was `made_for` an agent is deleted with it, unless another agent uses it too.
    """

    id: str
    org_id: str
    name: str
    made_for: str | None = None
    description: str | None = None
    embedding_config: Json | None = None
    metadata: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage(Stamp):
    """A piece of text in an archive. `created_at` is the time that the client gave, if it gave one."""

    id: str
    org_id: str
    archive_id: str
    text: str
    tags: tuple[str, ...] = ()
    metadata: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider(Stamp):
    """A model provider that an organisation added with its own key. `name` is the prefix of its models' handles and
    never changes; `sealed` holds the credentials as encrypted JSON; `refreshed_at` is when its models were last listed,
    None if never."""

    id: str
    org_id: str
    name: str
    provider_type: str
    base_url: str | None = None
    options: Json = field(default_factory=dict)  # settings that are not secret: region, api_version …
    sealed: str | None = field(default=None, repr=False)
    refreshed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent(Stamp):
    """`tool_rules` are in wire form; `model` is a handle. Tools and blocks are attached by rows of their own.

    Values of `secrets` are encrypted (`ports.encryption`), except in a response to a request for the secrets.
    """

    id: str
    org_id: str
    name: str
    system: str
    agent_type: str = "letta_v1_agent"
    model: str
    model_settings: Json = field(default_factory=dict)
    context_window_limit: int | None = None
    embedding: str | None = None
    embedding_config: Json | None = None
    fallback_models: tuple[Json, ...] = ()  # {"model": handle, "model_settings": …}, tried when the model cannot answer
    compaction_settings: Json | None = None
    budget: Json | None = None
    response_format: Json | None = None
    tool_rules: tuple[Json, ...] = ()
    approval_policies: tuple[Json, ...] = ()
    approval_expiry: Json | None = None
    parallel_tool_calls: bool = False
    description: str | None = None
    metadata: Json | None = None
    tags: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    timezone: str = "UTC"
    hidden: bool | None = None
    message_buffer_autoclear: bool = False
    enable_sleeptime: bool | None = None
    max_files_open: int | None = None
    per_file_view_window_char_limit: int | None = None
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    entity_id: str | None = None
    identity_ids: tuple[str, ...] = ()
    last_stop_reason: str | None = None
    last_run_completion: datetime | None = None
    last_run_duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation(Stamp):
    """A sequence of messages. Each agent has one default conversation, whose id clients never see."""

    id: str
    org_id: str
    agent_id: str
    is_default: bool = False
    summary: str | None = None
    description: str | None = None
    hidden: bool | None = None
    archived_at: datetime | None = None
    model: str | None = None
    model_settings: Json | None = None
    context_window_limit: int | None = None
    last_message_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    id: str
    org_id: str
    agent_id: str
    conversation_id: str
    status: RunStatus
    created_at: datetime
    stop_reason: StopReason | None = None
    turn_id: str = ""
    queued: bool = False
    background: bool = False
    request: Json = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    completed_at: datetime | None = None
    callback_url: str | None = None
    callback_sent_at: datetime | None = None
    callback_status_code: int | None = None
    callback_error: str | None = None
    base_template_id: str | None = None
    project_id: str | None = None
    ttft_ns: int | None = None
    total_duration_ns: int | None = None
    num_steps: int = 0
    tools_used: tuple[str, ...] = ()
    last_event: int = 0
    created_by: str | None = None
    in_default_conversation: bool = True
    cancel_asked_by: str | None = None
    cancel_reason: str | None = None
    cancel_rollback: bool = False
    accepted_by: str | None = None  # the process that accepted it, for others to drive
    # The version of the conversation with this run's input, if the input was written when the run was accepted for
    # others. The run is then claimed as running.
    input_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One finished model call of a run: a step of the agent, or the summary of a compaction."""

    id: str
    org_id: str
    run_id: str
    agent_id: str
    created_at: datetime
    call_type: CallType = "agent_step"
    status: str = "pending"  # pending, success, failed, cancelled
    stop_reason: StopReason | None = None
    model: str | None = None
    model_handle: str | None = None
    provider_name: str | None = None
    provider_id: str | None = None
    model_endpoint: str | None = None
    context_window_limit: int | None = None
    usage: Usage = field(default_factory=Usage)
    failed_models: tuple[Json, ...] = ()  # models tried before `model`, in order: model_handle, error_type, message
    error: Json | None = None
    feedback: str | None = None
    tags: tuple[str, ...] = ()
    project_id: str | None = None
    llm_ns: int | None = None
    tool_ns: int | None = None
    step_ns: int | None = None
