"""The interface of the approval store: calls that wait for a person, their decisions and expiry, allowances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from holdfast.core.conversation.messages import ToolCall
from holdfast.core.lifecycle import CallStatus
from holdfast.core.records import Actor
from holdfast.core.state import OnExpiry
from holdfast.ports.paging import Page


@dataclass(frozen=True, slots=True)
class DecisionMade:
    kind: str
    decided_by: str | None
    decided_at: datetime
    reason: str | None


@dataclass(frozen=True, slots=True)
class Approval:
    """One tool call that needs or needed a person's approval."""

    id: str
    agent_id: str
    agent_name: str
    conversation_id: str
    in_default_conversation: bool
    run_id: str
    step_id: str
    request_id: str | None
    call: ToolCall
    status: CallStatus
    client_side: bool
    asked_at: datetime
    expires_at: datetime | None
    on_expiry: OnExpiry | None
    edited: str | None
    notes: tuple[str, ...]
    decision: DecisionMade | None = None


@dataclass(frozen=True, slots=True)
class ApprovalFilter:
    waiting: bool | None = True  # None: waiting and decided ones
    agent_id: str | None = None
    conversation_id: str | None = None
    tool_name: str | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """A waiting call that has expired or is about to."""

    approval_id: str
    run_id: str
    conversation_id: str
    call_id: str
    on_expiry: OnExpiry
    org_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class KeptAllowance:
    id: str
    agent_id: str
    conversation_id: str
    tool_name: str
    arguments_digest: str | None
    created_at: datetime
    created_by: str | None


@dataclass(frozen=True, slots=True)
class Announcement:
    number: int
    kind: Literal["requested", "settled", "expiring"]
    approval_id: str
    created_at: datetime


class Deadlines(Protocol):
    async def expired(self, now: datetime) -> Sequence[Due]:
        """Waiting calls that have expired. Calls with `on_expiry` keep are not returned again."""
        ...

    async def warn(self, now: datetime) -> Sequence[str]:
        """Announce each call that is about to expire, once; returns the ids of their organisations."""
        ...


class ApprovalStore(Deadlines, Protocol):
    async def listing(self, actor: Actor, wanted: ApprovalFilter, page: Page) -> Sequence[Approval]: ...

    async def get(self, actor: Actor, approval_id: str) -> Approval: ...

    async def allowances(self, actor: Actor, page: Page) -> Sequence[KeptAllowance]: ...

    async def revoke(self, actor: Actor, allowance_id: str) -> None: ...

    async def announcements(self, actor: Actor, after: int, limit: int) -> Sequence[Announcement]: ...

    async def last_announcement(self, actor: Actor) -> int: ...
