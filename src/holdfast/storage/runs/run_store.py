"""The store of runs: accepts runs and gives the engine leases, checkpoints and the event log.

Implements `ports.stores.run_store.RunStore`; each method is one transaction. The SQL of claims, checkpoints, snapshots
and the event log is in the modules of those names. Listings of runs are in `storage.run_listing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.engine import RowMapping

from holdfast.core.errors import ConversationBusy, NotFound, UniqueConflict
from holdfast.core.records import Actor, Run, Step
from holdfast.ports.clock import Clock
from holdfast.ports.stores.run_store import (
    Change,
    Claim,
    KnownContext,
    KnownRequest,
    Lease,
    LogEnd,
    LogPage,
    NewPage,
    Snapshot,
    Takeover,
    Written,
)
from holdfast.storage.runs import checkpoint as checkpoints
from holdfast.storage.runs import claims, event_log
from holdfast.storage.runs.queue_limits import QueueLimits, refuse_if_full
from holdfast.storage.runs.request_keys import known_request, write_keys
from holdfast.storage.runs.snapshots import read_snapshot, read_takeover
from holdfast.storage.runs.steps import steps_of_run
from holdfast.storage.schema.record_tables import conversations, runs
from holdfast.storage.schema.run_tables import ONE_ACTIVE_RUN
from holdfast.storage.sql.database import Database
from holdfast.storage.sql.prepared import Prepared
from holdfast.storage.sql.rows import from_row, to_row
from holdfast.storage.sql.statements import ACTIVE_RUN, HELD_BY, HOLDS_CONVERSATION, fence_of, no_longer_held


class SqlRunStore:
    def __init__(
        self,
        database: Database,
        clock: Clock,
        approvals_webhook: str | None = None,
        limits: QueueLimits | None = None,
    ) -> None:
        self._database = database
        self._limits = limits or QueueLimits()
        self._clock = clock
        self._approvals_webhook = approvals_webhook

    def _with_webhook(self, change: Change) -> Change:
        return change if self._approvals_webhook is None else replace(change, approvals_webhook=self._approvals_webhook)

    async def snapshot(self, conversation_id: str, known_version: int | None = None) -> Snapshot:
        return await self._database.read_together(read_snapshot, conversation_id, known_version)

    async def begin(self, run: Run, lease: Lease | None, change: Change | None) -> None:
        try:
            first = None if change is None else self._with_webhook(change)
            await self._database.write(_begin, run, lease, first, self._limits, self._clock.now())
        except UniqueConflict as error:
            if error.constraint == ONE_ACTIVE_RUN:
                holder = await self._database.read_together(_holder, run.conversation_id)
                raise ConversationBusy(holder) from error
            raise

    async def known_request(self, conversation_id: str, keys: Sequence[str]) -> KnownRequest | None:
        return await self._database.read_together(known_request, conversation_id, keys)

    async def claim(self, run_id: str, owner: str, now: datetime, expires_at: datetime) -> Claim | None:
        try:
            return await self._database.write(claims.claim, run_id, owner, now, expires_at)
        except UniqueConflict:  # the unique index: another run took the conversation first
            return None

    async def checkpoint(self, lease: Lease, change: Change) -> Written:
        return await self._database.write(checkpoints.checkpoint, lease, self._with_webhook(change), self._clock.now())

    async def settle_resting(self, run_id: str, change: Change) -> bool:
        return await self._database.write(_settle_resting, run_id, self._with_webhook(change), self._clock.now())

    async def change_idle(self, change: Change) -> None:
        await self._database.write(_change_idle, change, self._clock.now())

    async def append_events(self, pages: Sequence[NewPage]) -> Sequence[str]:
        return await self._database.write(event_log.append, pages, self._clock.now())

    async def last_event(self, run_id: str) -> int:
        return await self._database.read_together(event_log.last_event, run_id)

    async def renew(self, leases: Sequence[Lease]) -> Sequence[str]:
        return await self._database.write(_renew, leases)

    async def cancels_asked(self, owner: str) -> Sequence[str]:
        return await self._database.read_together(_cancels_asked, owner)

    async def ask_cancel(self, run_id: str, by: str | None, reason: str | None, rollback: bool) -> Run:
        return await self._database.write(_ask_cancel, run_id, by, reason, rollback, self._clock.now())

    async def read_log(self, run_id: str, after: int, limit: int) -> LogPage:
        return await self._database.read_together(event_log.read, run_id, after, limit)

    async def log_ends(self, run_ids: Sequence[str]) -> Mapping[str, LogEnd]:
        return await self._database.read_together(event_log.log_ends, run_ids, self._clock.now())

    async def run(self, run_id: str, actor: Actor | None = None) -> Run:
        return await self._database.read_together(get_run, run_id, actor)

    async def run_steps(self, run_id: str) -> Sequence[Step]:
        return await self._database.read_together(steps_of_run, run_id)

    async def takeover(self, claim: Claim, known: KnownContext | None = None) -> Takeover:
        return await self._database.read_together(read_takeover, claim, known)

    async def claim_these(
        self, run_ids: Sequence[str], owner: str, now: datetime, expires_at: datetime
    ) -> Sequence[Claim]:
        return await self._database.write(claims.claim_these, run_ids, owner, now, expires_at)

    async def claim_next(self, owner: str, now: datetime, expires_at: datetime, most: int) -> Sequence[Claim]:
        try:
            return await self._database.write(claims.claim_next, owner, now, expires_at, most)
        except UniqueConflict:  # another run took one of the conversations first; the next poll finds the rest
            return ()

    async def release(self, lease: Lease) -> None:
        await self._database.write(claims.release, lease)

    async def hand_over(self, owner: str) -> None:
        await self._database.settled()
        await self.free_leases([owner])

    async def free_leases(self, owners: Sequence[str] | None = None) -> None:
        await self._database.write(claims.free_leases, owners)


_HOLDER = Prepared(select(runs.c.id).where(runs.c.conversation_id == bindparam("conversation_id"), HOLDS_CONVERSATION))
_INSERT = Prepared(insert(runs))
_RUN = Prepared(select(runs).where(runs.c.id == bindparam("id")))
_EXTEND = Prepared(update(runs).where(*HELD_BY).values(lease_expires_at=bindparam("expires_at")))
_ASK_CANCEL = Prepared(
    update(runs)
    .where(runs.c.id == bindparam("run"), runs.c.cancel_asked_at.is_(None))
    .values(
        cancel_asked_at=bindparam("now"),
        cancel_asked_by=bindparam("by"),
        cancel_reason=bindparam("reason"),
        cancel_rollback=bindparam("rollback"),
    )
)
# `ix_runs_active_cancel` holds only the runs that are to be cancelled.
_CANCELS_ASKED = Prepared(
    select(runs.c.id).where(runs.c.lease_owner == bindparam("owner"), ACTIVE_RUN, runs.c.cancel_asked_at.is_not(None))
)


def refuse_if_busy(connection: Connection, conversation_id: str) -> None:
    """Raise `ConversationBusy` if a run holds the conversation. Queued runs do not hold it."""
    if (busy := _holder(connection, conversation_id)) is not None:
        raise ConversationBusy(busy)


def _holder(connection: Connection, conversation_id: str) -> str | None:
    """The id of the run that holds the conversation."""
    found: str | None = connection.execute(_HOLDER, {"conversation_id": conversation_id}).scalar()
    return found


def lock_idle_conversation(connection: Connection, conversation_id: str) -> None:
    """Lock the conversation, and raise `ConversationBusy` if a run holds it. For changes that do not compare the
    conversation's version.

    While we hold the lock no run can begin: inserting a run locks the conversation row that it refers to."""
    connection.execute(select(conversations.c.id).where(conversations.c.id == conversation_id).with_for_update())
    refuse_if_busy(connection, conversation_id)


def _settle_resting(connection: Connection, run_id: str, change: Change, now: datetime) -> bool:
    """Raises `ConversationBusy` if a queued run would write messages in between those of the run that is working."""
    queued = connection.execute(select(runs.c.queued).where(runs.c.id == run_id)).scalar()
    if queued and change.moves and not change.rollback:
        refuse_if_busy(connection, change.conversation_id)
    return checkpoints.settle_resting(connection, run_id, change, now)


def _change_idle(connection: Connection, change: Change, now: datetime) -> None:
    refuse_if_busy(connection, change.conversation_id)
    checkpoints.idle_change(connection, change, now)


def _begin(
    connection: Connection, run: Run, lease: Lease | None, change: Change | None, limits: QueueLimits, now: datetime
) -> None:
    """Insert the run together with its first change. A unique index allows one active run per conversation, so a run
    that is active is not compared with others first."""
    if not run.queued and (change is None or change.rest is not None):
        refuse_if_busy(connection, run.conversation_id)
    if not run.queued and run.request.get("when_busy") == "queue":
        _refuse_to_overtake(connection, run.conversation_id)
    refuse_if_full(connection, run, limits)
    row = to_row(runs, run)
    row |= {"lease_epoch": 0, "lease_owner": None, "lease_expires_at": None}
    if lease is not None:
        row |= {"lease_epoch": lease.epoch, "lease_owner": lease.owner, "lease_expires_at": lease.expires_at}
    if change is not None:
        row |= checkpoints.run_values(change) | ({"status": checkpoints.rested(change.rest)} if change.rest else {})
    connection.execute(_INSERT, row)
    write_keys(connection, run, now)
    if change is not None:
        checkpoints.first_change(connection, run, change, now)


def _refuse_to_overtake(connection: Connection, conversation_id: str) -> None:
    """A `when_busy="queue"` request must not overtake runs that are already queued."""
    waiting = (runs.c.conversation_id == conversation_id, runs.c.stop_reason.is_(None), runs.c.queued)
    if connection.execute(select(runs.c.id).where(*waiting).limit(1)).first() is not None:
        raise ConversationBusy(None)


def _renew(connection: Connection, leases: Sequence[Lease]) -> list[str]:
    """Extend the leases; the ids of the runs that their owner no longer holds."""
    in_order = sorted(leases, key=lambda lease: lease.run_id)  # as every writer that locks several runs
    rows = [{**fence_of(lease), "expires_at": lease.expires_at} for lease in in_order]
    if connection.execute(_EXTEND, rows).rowcount == len(leases):
        return []
    return no_longer_held(connection, leases)


def _cancels_asked(connection: Connection, owner: str) -> list[str]:
    return sorted(connection.execute(_CANCELS_ASKED, {"owner": owner}).scalars())


def _ask_cancel(
    connection: Connection, run_id: str, by: str | None, reason: str | None, rollback: bool, now: datetime
) -> Run:
    """Store the first cancel request of a run; later ones change nothing."""
    request = {"run": run_id, "now": now, "by": by, "reason": reason, "rollback": rollback}
    connection.execute(_ASK_CANCEL, request)
    return get_run(connection, run_id)


def get_run(connection: Connection, run_id: str, actor: Actor | None = None) -> Run:
    row = connection.execute(_RUN, {"id": run_id}).mappings().first()
    if row is None or (actor is not None and row["org_id"] != actor.org_id):
        by = actor.user_id if actor else "nobody"
        raise NotFound(f"Run not found with id='['{run_id}']', access level in ['read'] for actor='{by}'")
    return run_value(row)


def run_value(row: RowMapping) -> Run:
    return from_row(Run, row)
