"""The interface of the toolbox, which runs tools: the job it gets and the outcome it returns.

`run` gets one call that is allowed and already stored as started. If the awaiting task is cancelled, `run` must kill
every process of the tool before it raises CancelledError. A tool that fails is an outcome with status `error`; an
exception means a bug in Holdfast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.core.conversation.messages import Image, ReturnStatus, Text
from holdfast.core.records import Block


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """The resource limits of one tool call."""

    wall_seconds: float = 60.0
    cpu_seconds: int = 60
    memory_bytes: int = 512 * 1024 * 1024
    processes: int = 32
    open_files: int = 256
    output_bytes: int = 1024 * 1024
    result_bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ToolJob:
    """Everything that is needed to run a tool once: its source, arguments, environment, idempotency key and agent."""

    call_id: str
    name: str
    source_code: str
    arguments: Mapping[str, Any]
    idempotency_key: str
    environment: Mapping[str, str] = field(default_factory=dict)
    agent_state: Mapping[str, Any] | None = None
    pip_requirements: tuple[str, ...] = ()
    json_schema: Mapping[str, Any] | None = None
    tool_type: str = "custom"
    mcp: Mapping[str, Any] | None = None
    agent_id: str = ""
    conversation_id: str = ""
    turn_id: str = ""
    org_id: str = ""
    blocks: tuple[Block, ...] = ()
    limits: ToolLimits = field(default_factory=ToolLimits)
    packages: tuple[str, ...] = ()  # folders with the installed packages; mounted read-only
    progress: Callable[[str], None] | None = None  # reports what the call waits for, as a text for the run's stream


@dataclass(frozen=True, slots=True)
class MemoryEdit:
    """A change of one memory block by a tool, written in one transaction with the tool's result.

    It is written only if the block still equals `before`, so a concurrent change is never overwritten. Without `before`
    the block is new and is attached to the agent; without `after` the block is detached from the agent.
    """

    before: Block | None
    after: Block | None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The result of a tool run. The model reads `content`; `edits` are written together with the result."""

    status: ReturnStatus
    content: str | tuple[Text | Image, ...]
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    edits: tuple[MemoryEdit, ...] = ()
    tier: str | None = None  # the sandbox's isolation tier, if the tool ran in a sandbox


class Toolbox(Protocol):
    async def run(self, job: ToolJob) -> ToolOutcome: ...

    async def close(self) -> None: ...
