"""The promise of whatever runs tools.

`run` is given one call that is allowed and already in the ledger as started. Cancelling the awaiting task must
kill everything the tool started before the cancellation gets out; nothing of it may survive.
A tool that fails is an outcome with status `error`, not an exception: exceptions are our own bugs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.core.messages import Image, ReturnStatus, Text
from holdfast.core.records import Block


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """Every tool is bounded; `None` takes the server's default."""

    wall_seconds: float = 60.0
    cpu_seconds: int = 60
    memory_bytes: int = 512 * 1024 * 1024
    processes: int = 32
    open_files: int = 256
    output_bytes: int = 1024 * 1024
    result_bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ToolJob:
    """Everything a tool gets: its source, arguments, declared environment, key and a view of the agent."""

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
    packages: tuple[str, ...] = ()  # folders with installed packages, built already; shown read-only
    tell: Callable[[str], None] | None = None  # what the call waits for, in words for whoever watches the run


@dataclass(frozen=True, slots=True)
class MemoryEdit:
    """A change of one memory block, made by a tool and written in one transaction with the tool's result.

    It counts only if the block is still what the tool saw (`before`); what somebody wrote meanwhile is never lost.
    Without `before` the block is new and gets attached to the agent; without `after` the agent lets go of it.
    """

    before: Block | None
    after: Block | None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What came of it. `content` is what the model reads; `edits` are written together with the result."""

    status: ReturnStatus
    content: str | tuple[Text | Image, ...]
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    edits: tuple[MemoryEdit, ...] = ()
    tier: str | None = None  # how well the tool was confined, if it ran in a process of its own


class Toolbox(Protocol):
    async def run(self, job: ToolJob) -> ToolOutcome: ...

    async def close(self) -> None: ...
