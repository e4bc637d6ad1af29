"""The request bodies that create and modify agents.

Only the form of each field is checked here (a mistake is a 422). `records.agents` checks whether models, tools and
rules exist and make sense.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from holdfast.api.http.limits import (
    MAX_MESSAGE_IDS,
    MAX_MESSAGES,
    MAX_NAMES,
    MAX_RULES,
    MAX_VARIABLE_CHARS,
    MAX_VARIABLE_NAME_CHARS,
    FewEntries,
    Names,
    at_most,
)
from holdfast.api.http.parameters import MAX_INT32
from holdfast.api.requests.context_bodies import BudgetIn, CompactionIn
from holdfast.api.requests.message_bodies import MessageIn
from holdfast.api.routes.blocks import NewBlockIn
from holdfast.core.conversation.messages import Draft
from holdfast.records.agent_patch import AgentPatch, NewAgent

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
    """A name becomes a file name when the agent is exported."""
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
    if len(value) > MAX_VARIABLE_NAME_CHARS:
        raise ValueError(f"the name of an environment variable can have {MAX_VARIABLE_NAME_CHARS} characters at most")
    return value


def _variable_value(value: str) -> str:
    if "\0" in value:
        raise ValueError("an environment variable cannot hold a NUL character")
    if len(value) > MAX_VARIABLE_CHARS:
        raise ValueError(f"an environment variable can have {MAX_VARIABLE_CHARS} characters at most")
    return value


VariableName = Annotated[str, AfterValidator(_variable_name)]
VariableValue = Annotated[str, AfterValidator(_variable_value)]
Name = Annotated[str, AfterValidator(_name)]
EmbeddingHandle = Annotated[str, AfterValidator(_handle)]
Count = Annotated[int, Field(ge=1, le=MAX_INT32)]
Variables = Annotated[dict[VariableName, VariableValue], FewEntries]
Rules = Annotated[list[dict[str, Any]], at_most(MAX_RULES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPatchIn(AgentPatch):
    """Only the fields whose form is limited; the others are in `records.agent_patch`."""

    name: Name | None = None
    tags: Names | None = None
    identity_ids: Names | None = None
    fallback_models: Annotated[list[str | dict[str, Any]], at_most(MAX_NAMES)] | None = None
    context_window_limit: Count | None = None
    max_tokens: Count | None = None
    embedding: EmbeddingHandle | None = None
    compaction_settings: CompactionIn | None = None
    budget: BudgetIn | None = None
    tool_ids: Names | None = None
    tool_rules: Rules | None = None
    approval_policies: Rules | None = None
    block_ids: Names | None = None
    message_ids: Annotated[list[str], at_most(MAX_MESSAGE_IDS)] | None = None
    secrets: Variables | None = None
    tool_exec_environment_variables: Variables | None = None
    max_files_open: Count | None = None
    per_file_view_window_char_limit: Count | None = None
    last_run_duration_ms: Annotated[int, Field(ge=0, le=MAX_INT32)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAgentIn(AgentPatchIn, NewAgent):
    agent_type: AgentType | None = None
    tools: Names | None = None
    memory_blocks: Annotated[list[NewBlockIn], at_most(MAX_NAMES)] | None = None
    initial_message_sequence: Annotated[list[MessageIn], at_most(MAX_MESSAGES)] | None = None
    max_reasoning_tokens: Count | None = None

    def first_messages(self) -> list[Draft]:
        return [message.draft() for message in self.initial_message_sequence or ()]
