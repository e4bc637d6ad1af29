"""The tables of the simulator's in-memory store: mutable rows around the frozen record values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.core.approvals.approval_gate import Allowance
from holdfast.core.conversation.messages import Message
from holdfast.core.records import Agent, Block, Conversation, Run, Step, Tool
from holdfast.core.state import Call, OnExpiry


@dataclass(slots=True)
class AgentRows:
    """An agent with its attached tools and blocks."""

    agent: Agent
    tools: tuple[Tool, ...]
    blocks: tuple[Block, ...] = ()
    revision: int = 0


@dataclass(slots=True)
class CallRow:
    """A row of the call ledger."""

    call: Call
    run_id: str
    turn_id: str
    conversation_id: str
    number: int
    created_at: datetime
    returned: bool = False
    started: bool = False  # at some time
    asked_at: datetime | None = None
    expires_at: datetime | None = None
    on_expiry: OnExpiry | None = None
    warn_at: datetime | None = None


@dataclass(slots=True)
class RunRow:
    run: Run
    epoch: int
    owner: str | None
    expires_at: datetime | None
    cancel_asked_at: datetime | None = None
    pages: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    letters: list[dict[str, Any]] = field(default_factory=list)
    used: set[str] = field(default_factory=set)


@dataclass(slots=True)
class ConversationRows:
    """A conversation: its messages, its calls, and the context that the model sees."""

    conversation: Conversation
    agent_rows: AgentRows
    version: int = 1
    next_seq: int = 1
    context_tokens: int | None = None
    unanswered_from: int | None = None
    messages: dict[str, Message] = field(default_factory=dict)
    context: dict[int, str] = field(default_factory=dict)  # position -> message
    ledger: dict[tuple[str, str], CallRow] = field(default_factory=dict)
    runs: list[RunRow] = field(default_factory=list)
    keys: dict[str, tuple[str, str, datetime]] = field(default_factory=dict)
    allowances: list[Allowance] = field(default_factory=list)

    def seen(self) -> tuple[Message, ...]:
        return tuple(self.messages[self.context[position]] for position in sorted(self.context))

    def unreturned(self) -> list[CallRow]:
        rows = [row for row in self.ledger.values() if not row.returned]
        return sorted(rows, key=lambda row: row.call.position)

    def waits(self) -> bool:
        return any(not row.returned and row.call.waiting for row in self.ledger.values())


@dataclass(slots=True)
class Tables:
    """All tables of the store."""

    conversations: dict[str, ConversationRows] = field(default_factory=dict)
    runs: dict[str, RunRow] = field(default_factory=dict)
    decisions: list[tuple[str, str, str, str | None]] = field(default_factory=list)  # step, call, kind, by
    numbers: int = 0
