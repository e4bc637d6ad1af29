"""The promise of the store that keeps runs: durable acceptance, fenced checkpoints, a numbered log of events.

The engine reaches rows only through `RunStore`. Each method is one transaction. Whoever writes to a run holds a
`Lease`; a write with an older epoch raises `LostLease` and changes nothing. What a checkpoint writes is one `Change`,
and there is no other way to change a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from holdfast.core.gate import Allowance
from holdfast.core.lifecycle import RunStatus, StopReason
from holdfast.core.messages import Draft, Message
from holdfast.core.records import Actor, Agent, Block, Conversation, Run, Step, Tool
from holdfast.core.state import Call, Ruling
from holdfast.ports.toolbox import MemoryEdit


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to a run until `expires_at`; the epoch fences off whoever held it before."""

    run_id: str
    owner: str
    epoch: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ContextCut:
    """Compaction: of the context, keep the system message and what stands at `keep_from` or later; `summary_id` is
    put in between."""

    keep_from: int
    summary_id: str


@dataclass(frozen=True, slots=True)
class Rest:
    """The run comes to rest. `metadata` is merged into the run's: why it failed, or who cancelled it."""

    status: RunStatus
    stop_reason: StopReason
    completed_at: datetime
    total_duration_ns: int
    metadata: dict[str, Any] = field(default_factory=dict)
    ran_tools: bool = True  # False spares looking for them


@dataclass(frozen=True, slots=True)
class Change:
    """Everything one checkpoint writes.

    `version` is the conversation's version this change was decided over. A change that `moves` the conversation
    compares it and advances it, so nothing that was decided over an older state is written. `events` are records of
    the outward stream, numbered from `first_event`.
    """

    conversation_id: str
    version: int
    next_seq: int
    messages: tuple[Message, ...] = ()
    system: Message | None = None
    cut: ContextCut | None = None
    new_calls: tuple[Call, ...] = ()
    changed_calls: tuple[Call, ...] = ()
    step: Step | None = None
    step_is_new: bool = True
    events: tuple[str, ...] = ()
    first_event: int = 1
    edits: tuple[MemoryEdit, ...] = ()
    rest: Rest | None = None
    ttft_ns: int | None = None
    num_steps: int | None = None
    context_tokens: int | None = None  # about how much the model reads after this change; None if nobody knows
    rulings: tuple[Ruling, ...] = ()
    decided_by: str | None = None
    rollback: bool = False
    holds: bool = False  # the conversation as it is, until the input of the run is written
    allow: Mapping[str, str | None] = field(default_factory=dict)  # allowances to write with the decision
    tell: str | None = None  # a URL that is told of calls that begin or cease to wait

    @property
    def moves(self) -> bool:
        touched = self.messages or self.system is not None or self.cut is not None or self.rollback
        return bool(touched) or self.holds


@dataclass(frozen=True, slots=True)
class Situation:
    """All that is known about a conversation when something is to happen in it. `context` is None if the caller already
    holds it at this version."""

    conversation: Conversation
    agent: Agent
    tools: tuple[Tool, ...]
    blocks: tuple[Block, ...]
    version: int
    next_seq: int
    context: tuple[Message, ...] | None
    context_tokens: int | None = None  # as the last change left it
    calls: tuple[Call, ...] = ()
    turn_id: str | None = None  # the turn that the open calls belong to
    step: Step | None = None  # the step that they belong to, which may be an earlier run's
    called: tuple[str, ...] = ()
    last_result: str | None = None
    allowances: tuple[Allowance, ...] = ()
    unread: tuple[Draft, ...] = ()  # sent along with answers to the open calls; the model reads them after the results


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """A request that was accepted before under one of the same names."""

    run_id: str
    body_digest: str
    key: str


@dataclass(frozen=True, slots=True)
class LogPage:
    """Records of a run's stream after a cursor; `done` says the run rests and nothing follows. `last_event` is the end
    of the whole log, which a cursor may be beyond."""

    records: tuple[str, ...]
    first_seq: int
    done: bool
    last_event: int
    gap_until: int | None = None


class RunStore(Protocol):
    async def situation(self, conversation_id: str, known_version: int | None = None) -> Situation: ...

    async def begin(self, run: Run, lease: Lease | None, change: Change | None) -> None:
        """Accept a run: durable when this returns, and so are the keys of its request. With a lease, its first change
        is written in the same transaction. Raises `ConversationBusy`, or `StaleSituation` if the conversation has moved
        on."""
        ...

    async def known_request(self, conversation_id: str, keys: Sequence[str]) -> KnownRequest | None:
        """What became of an earlier request with one of these keys."""
        ...

    async def claim(self, run_id: str, owner: str, now: datetime, expires_at: datetime) -> Lease | None:
        """Take over an active run whose lease has run out; None if somebody else has it or it rests."""
        ...

    async def checkpoint(self, lease: Lease, change: Change) -> bool:
        """Write a change; True if somebody has asked to cancel the run."""
        ...

    async def settle_resting(self, run_id: str, change: Change) -> bool:
        """Write a change to a run that waits for a human or for its turn, and so belongs to nobody; False if it no
        longer waits. Raises `ConversationBusy` if a queued run would change the context of a run at work; with
        `rollback` it does not, and what it writes is in the history only."""
        ...

    async def change_idle(self, change: Change) -> None:
        """Change a conversation outside of any run. Raises `ConversationBusy` if a run holds it."""
        ...

    async def append_events(self, lease: Lease, first_seq: int, records: Sequence[str]) -> bool:
        """Append to the log and renew the lease; True if a cancel was asked."""
        ...

    async def renew(self, lease: Lease) -> bool: ...

    async def ask_cancel(self, run_id: str, by: str | None, reason: str | None, rollback: bool) -> Run:
        """Write down that the run is to be cancelled; the run as it is now, with the wish that came first."""
        ...

    async def read_log(self, run_id: str, after: int, limit: int) -> LogPage: ...

    async def run(self, run_id: str, actor: Actor | None = None) -> Run: ...

    async def run_steps(self, run_id: str) -> Sequence[Step]: ...

    async def turn_so_far(self, turn_id: str) -> tuple[tuple[str, ...], str | None]:
        """The tools that ran in a turn, oldest first, and the last result."""
        ...

    async def claim_next(self, owner: str, now: datetime, expires_at: datetime, most: int) -> Sequence[Lease]:
        """Take up to so many runs that nobody holds: those that wait for their first owner, those whose owner's lease
        has run out, and the first in the queue of each free conversation. Organisations take turns; within one, who
        came first goes first. Any number of processes may ask at once, and no run is given to two."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give a run back before the lease has run out; whoever looks next may take it, and what the old owner still
        has under way is not written any more. Lost already: nothing."""
        ...

    async def free_leases(self, owners: Sequence[str] | None = None) -> None:
        """Declare the leases of these owners void, or all; only for whoever knows that they are dead."""
        ...

    async def hand_over(self, owner: str) -> None:
        """Give back everything that this owner holds, once all that it has under way is written: it is leaving."""
        ...


class StaleMemory(Exception):
    """A memory block is no longer what an edit was made from; nothing of the change was written."""

    def __init__(self, label: str) -> None:
        super().__init__(f"The memory block {label} has changed.")
        self.label = label


class StaleSituation(Exception):
    """The conversation changed between looking and writing; look again."""
