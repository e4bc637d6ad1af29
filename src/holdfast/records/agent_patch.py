"""What a client sends to create or change an agent, as typed values: `NewAgent` and `AgentPatch`.

A field that is stored as it was sent is a field of `AgentSettings` and of `core.records.Agent`, and nothing else is
needed to write it. A field that is checked or converted first is a field of `AgentPatch`; `records.agents` does that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.core.lifecycle import StopReason
from holdfast.records.blocks import NewBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The fields that are stored as they were sent. None leaves a field as it is."""

    name: str | None = None
    system: str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    embedding: str | None = None
    embedding_config: dict[str, Any] | None = None
    compaction_settings: dict[str, Any] | None = None
    budget: dict[str, Any] | None = None  # Holdfast's own: the limits of each run
    timezone: str | None = None
    hidden: bool | None = None
    message_buffer_autoclear: bool | None = None
    enable_sleeptime: bool | None = None
    max_files_open: int | None = None
    per_file_view_window_char_limit: int | None = None
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPatch(AgentSettings):
    """All fields of an agent that a client may set. None leaves a field as it is."""

    tags: Sequence[str] | None = None
    identity_ids: Sequence[str] | None = None
    model: str | None = None
    model_settings: dict[str, Any] | None = None
    fallback_models: Sequence[str | Mapping[str, Any]] | None = None  # Holdfast's own
    llm_config: dict[str, Any] | None = None
    context_window_limit: int | None = None
    max_tokens: int | None = None
    parallel_tool_calls: bool | None = None
    tool_ids: Sequence[str] | None = None
    tool_rules: Sequence[Mapping[str, Any]] | None = None
    approval_policies: Sequence[Mapping[str, Any]] | None = None
    approval_expiry: dict[str, Any] | None = None
    block_ids: Sequence[str] | None = None
    message_ids: Sequence[str] | None = None
    secrets: Mapping[str, str] | None = None
    tool_exec_environment_variables: Mapping[str, str] | None = None  # the older name of `secrets`
    last_stop_reason: StopReason | None = None
    last_run_completion: datetime | None = None
    last_run_duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAgent(AgentPatch):
    """An agent to create. `tools` are names of tools; what is said about a last run is ignored."""

    agent_type: str | None = None
    tools: Sequence[str] | None = None
    memory_blocks: Sequence[NewBlock] | None = None
    include_base_tools: bool = True
    enable_reasoner: bool | None = None
    max_reasoning_tokens: int | None = None
