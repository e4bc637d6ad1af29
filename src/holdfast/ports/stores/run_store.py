"""The interface of the run store: accepts runs, writes checkpoints, hands out leases, keeps each run's event log.

The engine reads and writes runs only through `RunStore`; `storage.runs.run_store` implements it. Each method is one
transaction.

A run goes through these methods:

1. `begin` accepts it. It is durable when `begin` returns.
2. A worker holds a `Lease` on it: one that it passed to `begin`, or one from `claim` or `claim_next`. The lease has an
   epoch that grows with every new owner. A write with an older epoch raises `LostLease` and changes nothing.
3. The worker writes each decision with `checkpoint`, as one `Change`: messages, calls, steps and events in one
   transaction. In between, `append_events` writes pages of events, and `renew` extends the lease.
4. The last `Change` has a `Rest`; after it the run has no owner.

A run without an owner (it waits for a person, or in a queue) is changed by `settle_resting`, and a conversation
without an active run by `change_idle`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from holdfast.core.approvals.approval_gate import Allowance
from holdfast.core.conversation.messages import Draft, Message
from holdfast.core.lifecycle import RunStatus, StopReason
from holdfast.core.records import Actor, Agent, Block, Conversation, Run, Step, Tool
from holdfast.core.state import AuditEntry, Call
from holdfast.ports.toolbox import MemoryEdit


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to a run until `expires_at`. The epoch fences off earlier owners."""

    run_id: str
    owner: str
    epoch: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that a process has claimed, as it is now, and the lease on it."""

    lease: Lease
    run: Run
    cancel_asked: bool = False


@dataclass(frozen=True, slots=True)
class ContextCut:
    """A compaction of the context: keep the system message and the messages from position `keep_from` on, and put the
    message `summary_id` between them."""

    keep_from: int
    summary_id: str


@dataclass(frozen=True, slots=True)
class Rest:
    """The run comes to rest. `metadata` is merged into the run's metadata: why it failed, or who cancelled it."""

    status: RunStatus
    stop_reason: StopReason
    completed_at: datetime
    total_duration_ns: int
    metadata: dict[str, Any] = field(default_factory=dict)
    ran_tools: bool = True  # False saves the query for the tools that the run used


@dataclass(frozen=True, slots=True)
class Change:
    """Everything one checkpoint writes.

    `version` is the version of the conversation that this change was decided on. A change that `moves` the conversation
    compares the version with the stored one and advances it, so a decision on an outdated state is never written. A
    change that was decided from memory compares the agent's `revision` too (storage/runs/agent_revision.py).
    `next_seq` is the sequence number of the next message. `events` are events of the run's client stream, numbered from
    `first_event`.
    """

    conversation_id: str
    version: int
    next_seq: int
    messages: tuple[Message, ...] = ()
    beside_context: frozenset[str] = frozenset()  # ids of messages that are added to the history only
    unanswered_from: int | None = None  # see `Snapshot`; written whenever the conversation moves
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
    context_tokens: int | None = None  # the context's estimated size after this change; None if unknown
    audit_entries: tuple[AuditEntry, ...] = ()
    decided_by: str | None = None
    rollback: bool = False
    # Advance the conversation's version although nothing else changes, so that no decision on the old version can be
    # written before the input of this run.
    holds: bool = False
    allow: Mapping[str, str | None] = field(default_factory=dict)  # allowances to write with the decision
    revision: int | None = None  # of the agent, which is then compared too: the decision was made from memory
    approvals_webhook: str | None = None  # the URL to notify of calls that begin or stop waiting for a person

    @property
    def moves(self) -> bool:
        """Whether this change advances the conversation's version."""
        touched = self.messages or self.system is not None or self.cut is not None or self.rollback
        return bool(touched) or self.holds

    @property
    def announced(self) -> list[tuple[Literal["requested", "settled"], Call]]:
        """The calls that begin to wait for a person, and those that a person or a policy has decided."""
        waiting = [call for call in (*self.new_calls, *self.changed_calls) if call.waiting]
        settled = [entry.call for entry in self.audit_entries if entry.call.request_id is not None]
        return [*(("requested", call) for call in waiting), *(("settled", call) for call in settled)]


@dataclass(frozen=True, slots=True)
class Written:
    """What the lease holder learns from a checkpoint."""

    is_cancel_asked: bool
    revision: int  # of the agent; it does not have to include what this change has written


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent read of a conversation with everything that a decision needs. `context` is None if the caller
    already has the context of this version, or has it but for `newer`: the system message as it is now, and what was
    added to the end.

    `unanswered_from` is the sequence number at which the turns without an answer begin: the one that is under way or
    waits, and those directly before it that failed or were cancelled. None if the last turn was answered."""

    conversation: Conversation
    agent: Agent
    tools: tuple[Tool, ...]
    blocks: tuple[Block, ...]
    version: int
    revision: int  # of the agent
    next_seq: int
    context: tuple[Message, ...] | None
    newer: tuple[Message, ...] = ()
    context_tokens: int | None = None  # the estimate that the last change stored
    calls: tuple[Call, ...] = ()
    turn_id: str | None = None  # the turn that the open calls belong to
    step: Step | None = None  # the step of the open calls; it may belong to an earlier run
    called: tuple[str, ...] = ()
    last_result: str | None = None
    allowances: tuple[Allowance, ...] = ()
    unanswered_from: int | None = None
    unread: tuple[Draft, ...] = ()  # messages sent with answers to the open calls; the model reads them later


@dataclass(frozen=True, slots=True)
class KnownContext:
    """What a process has cached of a conversation: its version, and the sequence number of the last message."""

    version: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """An earlier request with the same idempotency key."""

    run_id: str
    body_digest: str
    key: str


@dataclass(frozen=True, slots=True)
class LogPage:
    """A page of a run's event log after a cursor. With `done` the run rests and no event follows. `last_event` is the
    number of the log's last event; a client's cursor may be greater. `gap_until` is set if events after the cursor
    were removed by retention."""

    records: tuple[str, ...]
    first_seq: int
    done: bool
    last_event: int
    gap_until: int | None = None


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a run's log ends now. `waits`: no process holds the run, and one may claim it."""

    last_event: int
    rests: bool
    waits: bool


@dataclass(frozen=True, slots=True)
class NewPage:
    """Records to append to a run's log as its lease holder; the first is numbered `first_seq`."""

    lease: Lease
    first_seq: int
    records: Sequence[str]


@dataclass(frozen=True, slots=True)
class Takeover:
    """What the new owner of a run continues from: the conversation with the tools that were called in the run's turn,
    the run's steps, and the number of the last event in its log."""

    snapshot: Snapshot
    steps: tuple[Step, ...]
    last_event: int


class RunStore(Protocol):
    async def snapshot(self, conversation_id: str, known_version: int | None = None) -> Snapshot:
        """Read a conversation. Its context is left out if the conversation is still at `known_version`."""
        ...

    async def begin(self, run: Run, lease: Lease | None, change: Change | None) -> None:
        """Accept a run. The run and its idempotency keys are durable when this returns. With a lease, the run's first
        change is written in the same transaction. Raises `ConversationBusy`, or `StaleSnapshot` if the conversation has
        changed since `change` was decided."""
        ...

    async def known_request(self, conversation_id: str, keys: Sequence[str]) -> KnownRequest | None:
        """The earlier request of this conversation with one of these idempotency keys, if there is one."""
        ...

    async def claim(self, run_id: str, owner: str, now: datetime, expires_at: datetime) -> Claim | None:
        """Take over an active run whose lease has expired; None if another owner has it or it rests."""
        ...

    async def checkpoint(self, lease: Lease, change: Change) -> Written:
        """Write a change."""
        ...

    async def settle_resting(self, run_id: str, change: Change) -> bool:
        """Write a change to a run that waits for a person or in the queue, so that it has no owner; False if it no
        longer waits. Raises `ConversationBusy` if this would change the context while another run of the conversation
        is active. A change with `rollback` does not touch the context, only the history, so it does not raise."""
        ...

    async def change_idle(self, change: Change) -> None:
        """Change a conversation outside of any run. Raises `ConversationBusy` if it has an active run."""
        ...

    async def append_events(self, pages: Sequence[NewPage]) -> Sequence[str]:
        """Append pages to the event logs of different runs. Returns the ids of the runs that their owner no longer
        holds, of which nothing was written. `Run.last_event` does not follow until the next checkpoint."""
        ...

    async def last_event(self, run_id: str) -> int:
        """The number of the last event in the log of an active run."""
        ...

    async def renew(self, leases: Sequence[Lease]) -> Sequence[str]:
        """Extend these leases. Returns the ids of the runs that their owner no longer holds: they were claimed by
        another, released, or have come to rest."""
        ...

    async def cancels_asked(self, owner: str) -> Sequence[str]:
        """The ids of the runs that this owner holds and a cancel was requested of."""
        ...

    async def ask_cancel(self, run_id: str, by: str | None, reason: str | None, rollback: bool) -> Run:
        """Store a request to cancel the run. Returns the run as it is now, with the first such request."""
        ...

    async def read_log(self, run_id: str, after: int, limit: int) -> LogPage: ...

    async def log_ends(self, run_ids: Sequence[str]) -> Mapping[str, LogEnd]:
        """Where the logs of these runs end; without those that were deleted."""
        ...

    async def run(self, run_id: str, actor: Actor | None = None) -> Run: ...

    async def run_steps(self, run_id: str) -> Sequence[Step]: ...

    async def claim_next(self, owner: str, now: datetime, expires_at: datetime, most: int) -> Sequence[Claim]:
        """Claim at most `most` runs without an owner: new runs, runs whose lease has expired, and the first queued run
        of each conversation that has no active one. Organisations take turns; within one, the oldest run comes first.
        Any number of processes may call this at once; no run is given to two of them."""
        ...

    async def claim_these(
        self, run_ids: Sequence[str], owner: str, now: datetime, expires_at: datetime
    ) -> Sequence[Claim]:
        """Claim those of these runs that have no owner and are not queued."""
        ...

    async def takeover(self, claim: Claim, known: KnownContext | None = None) -> Takeover:
        """Read what the new owner of a run continues from. Of the context only what is not `known` is read, if no more
        than the run's input was written since."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give up the lease before it expires, so that another worker can claim the run at once. Pending writes of the
        old owner are refused from then on. Does nothing if the lease is already lost."""
        ...

    async def free_leases(self, owners: Sequence[str] | None = None) -> None:
        """Void the leases of these owners, or all leases. The caller must know that the owners are dead."""
        ...

    async def hand_over(self, owner: str) -> None:
        """Release all leases of this owner after its pending writes are done; for a graceful shutdown."""
        ...


class StaleMemory(Exception):
    """A memory block has changed since an edit of it was made; nothing of the change was written."""

    def __init__(self, label: str) -> None:
        super().__init__(f"The memory block {label} has changed.")
        self.label = label


class StaleSnapshot(Exception):
    """The conversation changed between reading and writing; read it again and decide again."""
