"""What clients may send about an agent: the bodies of create and modify.

Only forms are checked here (and refused with 422); whether models, tools and rules make sense is for `records.agents`.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from holdfast.api.blocks import NewBlock
from holdfast.api.bodies import Wire
from holdfast.api.context_bodies import BudgetIn, CompactionIn
from holdfast.api.inputs import MessageIn
from holdfast.api.parameters import LARGEST
from holdfast.core.lifecycle import StopReason

AgentType = Literal[
    "memgpt_agent",
    "memgpt_v2_agent",
    "letta_v1_agent",
    "react_agent",
    "workflow_agent",
    "split_thread_agent",
    "sleeptime_agent",
    "voice_convo_agent",
    "voice_sleeptime_agent",
]

_NOT_IN_NAMES = re.compile(r'[/\\:*?"<>|]')


def _name(value: str) -> str:
    """Names end up as file names when agents are exported."""
    if not value.strip():
        raise ValueError("an agent's name must not be empty")
    if _NOT_IN_NAMES.search(value):
        raise ValueError(
            f'Agent name {value!r} contains invalid characters; it must not hold any of / \\ : * ? " < > |'
        )
    return value


def _handle(value: str) -> str:
    if "/" not in value:
        raise ValueError(f"Embedding handle {value!r} should be in the format provider/model-name")
    return value


def _variable_name(value: str) -> str:
    if not value or "=" in value or "\0" in value:
        raise ValueError(f"{value!r} cannot be the name of an environment variable")
    return value


def _variable_value(value: str) -> str:
    if "\0" in value:
        raise ValueError("an environment variable cannot hold a NUL character")
    return value


VariableName = Annotated[str, AfterValidator(_variable_name)]
VariableValue = Annotated[str, AfterValidator(_variable_value)]
Name = Annotated[str, AfterValidator(_name)]
EmbeddingHandle = Annotated[str, AfterValidator(_handle)]
Count = Annotated[int, Field(ge=1, le=LARGEST)]


class ChangedAgent(Wire):
    """Every field of an agent that a client may set; what is left out, or null, stays as it is."""

    name: Name | None = None
    system: str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    tags: list[str] | None = None
    model: str | None = None
    model_settings: dict[str, Any] | None = None
    fallback_models: list[str | dict[str, Any]] | None = None  # Holdfast's own
    llm_config: dict[str, Any] | None = None
    context_window_limit: Count | None = None
    max_tokens: Count | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    embedding: EmbeddingHandle | None = None
    embedding_config: dict[str, Any] | None = None
    compaction_settings: CompactionIn | None = None
    budget: BudgetIn | None = None  # Holdfast's own: what each of its runs may spend
    tool_ids: list[str] | None = None
    tool_rules: list[dict[str, Any]] | None = None
    approval_policies: list[dict[str, Any]] | None = None
    approval_expiry: dict[str, Any] | None = None
    block_ids: list[str] | None = None
    message_ids: list[str] | None = None
    secrets: dict[VariableName, VariableValue] | None = None
    tool_exec_environment_variables: dict[VariableName, VariableValue] | None = None
    identity_ids: list[str] | None = None
    timezone: str | None = None
    hidden: bool | None = None
    message_buffer_autoclear: bool | None = None
    enable_sleeptime: bool | None = None
    max_files_open: Count | None = None
    per_file_view_window_char_limit: Count | None = None
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    last_stop_reason: StopReason | None = None
    last_run_completion: datetime | None = None
    last_run_duration_ms: Annotated[int, Field(ge=0, le=LARGEST)] | None = None


class NewAgent(ChangedAgent):
    agent_type: AgentType | None = None
    tools: list[str] | None = None
    memory_blocks: list[NewBlock] | None = None
    initial_message_sequence: list[MessageIn] | None = None
    include_base_tools: bool = True
    enable_reasoner: bool | None = None
    max_reasoning_tokens: Count | None = None

    def given(self) -> dict[str, Any]:
        """The messages to begin with are read as those of any request."""
        given = super().given()
        if self.initial_message_sequence:
            given["initial_message_sequence"] = [message.draft() for message in self.initial_message_sequence]
        return given
