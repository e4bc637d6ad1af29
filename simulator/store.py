"""An in-memory run store with the rules of the real one: fenced leases, versions, unique keys, allowed changes.

Each method is one transaction: it checks everything before it changes anything. It is synchronous; `wire` makes it
the `RunStore` of a process. A test replays recorded histories call by call on SQLite and Postgres and compares every
result, so the two stores cannot differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from holdfast.core.conversation.messages import ApprovalResponseBody, Draft, Message, plain_text
from holdfast.core.errors import Broken, ConversationBusy, LostLease, NotFound, UniqueConflict
from holdfast.core.lifecycle import ACTIVE, CALL_CHANGES, check_rest, sources_of
from holdfast.core.records import Conversation, Run, Step
from holdfast.core.run_request import RunRequest
from holdfast.ports.stores.approval_store import Due
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
    StaleMemory,
    StaleSnapshot,
    Takeover,
    Written,
)
from simulator.rows import AgentRows, CallRow, ConversationRows, RunRow, Tables
from simulator.writing import run_values, write


class MemoryStore(Tables):
    def add_conversation(self, agent_rows: AgentRows, conversation: Conversation, system: Message) -> None:
        stored = ConversationRows(conversation, agent_rows, messages={system.id: system}, context={0: system.id})
        self.conversations[conversation.id] = stored

    # ---- reading ----------------------------------------------------------------------------------------------------

    def snapshot(self, conversation_id: str, known_version: int | None = None) -> Snapshot:
        stored = self._conversation(conversation_id)
        rows = stored.unreturned()
        turn_id = rows[0].turn_id if rows else None
        called, last = self.turn_so_far(turn_id) if turn_id else ((), None)
        return Snapshot(
            conversation=stored.conversation,
            agent=stored.agent_rows.agent,
            tools=stored.agent_rows.tools,
            blocks=stored.agent_rows.blocks,
            version=stored.version,
            revision=stored.agent_rows.revision,
            next_seq=stored.next_seq,
            unanswered_from=stored.unanswered_from,
            context=None if stored.version == known_version else stored.seen(),
            context_tokens=stored.context_tokens,
            calls=tuple(row.call for row in rows),
            turn_id=turn_id,
            step=self._step(rows[0].call.step_id) if rows else None,
            called=called,
            last_result=last,
            allowances=tuple(stored.allowances),
            unread=self._sent_along(stored, {row.call.step_id for row in rows}),
        )

    def _sent_along(self, stored: ConversationRows, step_ids: set[str]) -> tuple[Draft, ...]:
        answers = [
            message
            for message in stored.messages.values()
            if message.step_id in step_ids and isinstance(message.body, ApprovalResponseBody) and message.run_id
        ]
        answers.sort(key=lambda message: message.seq)
        requests = [RunRequest.from_json(self.runs[message.run_id or ""].run.request) for message in answers]
        return tuple(draft for request in requests for draft in request.messages)

    def _step(self, step_id: str) -> Step | None:
        return next((step for row in self.runs.values() for step in row.steps if step.id == step_id), None)

    def _conversation(self, conversation_id: str) -> ConversationRows:
        if (stored := self.conversations.get(conversation_id)) is None:
            raise NotFound(f"Conversation {conversation_id} not found")
        return stored

    def known_request(self, conversation_id: str, keys: Sequence[str]) -> KnownRequest | None:
        stored = self.conversations[conversation_id]
        known = [(stored.keys[key], key) for key in keys if key in stored.keys]
        if not known:
            return None
        (run_id, digest, _), key = min(known, key=lambda item: (item[0][2], item[0][0]))
        return KnownRequest(run_id, digest, key)

    def read_log(self, run_id: str, after: int, limit: int) -> LogPage:
        row = self._row(run_id)
        records: list[str] = []
        for first, page in [page for page in row.pages if page[0] + len(page[1]) > after + 1][:limit]:
            records.extend(page[max(0, after + 1 - first) :])
        rests = row.run.status not in ACTIVE
        last_event = row.run.last_event if rests else self.last_event(run_id)
        done = rests and (after + len(records) >= last_event or not records)
        return LogPage(tuple(records), after + 1, done, last_event)

    def log_ends(self, run_ids: Sequence[str], now: datetime) -> dict[str, LogEnd]:
        rows = {run_id: self.runs[run_id] for run_id in run_ids if run_id in self.runs}
        return {
            run_id: LogEnd(
                row.run.last_event if row.run.status not in ACTIVE else self.last_event(run_id),
                rests=row.run.status not in ACTIVE,
                waits=row.run.status in ACTIVE and not row.run.queued and _free(row, now),
            )
            for run_id, row in rows.items()
        }

    def run(self, run_id: str) -> Run:
        return self._row(run_id).run

    def _row(self, run_id: str) -> RunRow:
        if (row := self.runs.get(run_id)) is None:
            raise NotFound(f"Run not found with id='{run_id}'")
        return row

    def run_steps(self, run_id: str) -> tuple[Step, ...]:
        return tuple(sorted(self.runs[run_id].steps, key=lambda step: (step.created_at, step.id)))

    def takeover(self, claim: Claim, known: KnownContext | None) -> Takeover:
        run, stored = claim.run, self.conversations[claim.run.conversation_id]
        snapshot = self.snapshot(run.conversation_id, known.version if known else None)
        if known is not None and run.input_version == known.version + 1 == stored.version:
            system, *others = stored.seen()
            added = (message for message in others if message.run_id == run.id and message.seq > known.last_seq)
            snapshot = replace(snapshot, context=None, newer=(system, *added))
        called, last = self.turn_so_far(run.turn_id)
        snapshot = replace(snapshot, called=called, last_result=last)
        return Takeover(snapshot, self.run_steps(run.id), self.last_event(run.id))

    def turn_so_far(self, turn_id: str) -> tuple[tuple[str, ...], str | None]:
        rows = [
            row
            for stored in self.conversations.values()
            for row in stored.ledger.values()
            if row.turn_id == turn_id and row.call.executed and row.returned
        ]
        rows.sort(key=lambda row: (row.created_at, row.call.position))
        last = plain_text(rows[-1].call.result.content) if rows and rows[-1].call.result else None
        return tuple(row.call.call.name for row in rows), last

    # ---- writing ----------------------------------------------------------------------------------------------------

    def begin(self, run: Run, lease: Lease | None, change: Change | None, now: datetime) -> None:
        stored = self._conversation(run.conversation_id)
        if not run.queued:
            self._refuse_if_busy(stored)
            if run.request.get("when_busy") == "queue" and any(_in_queue(row) for row in stored.runs):
                raise ConversationBusy(None)
        keys = run.request.get("keys") or ()
        if any(key in stored.keys for key in keys):
            raise UniqueConflict("pk_run_keys", "This conflicts with what is stored: run_keys")
        if change is not None:
            self._check(stored, change)
        row = RunRow(run, lease.epoch if lease else 0, lease.owner if lease else None, None)
        row.expires_at = lease.expires_at if lease else None
        self.runs[run.id] = row
        stored.runs.append(row)
        for key in keys:
            stored.keys[key] = (run.id, run.request["body_digest"], now)
        if change is not None:
            status = change.rest.status if change.rest else run.status
            row.run = replace(run, status=status, **run_values(change))
            write(self, stored, row, change, now)

    @staticmethod
    def _refuse_if_busy(stored: ConversationRows) -> None:
        for row in stored.runs:
            if row.run.status in ACTIVE and not row.run.queued:
                raise ConversationBusy(row.run.id)

    def claim(self, run_id: str, owner: str, now: datetime, expires_at: datetime) -> Claim | None:
        row = self.runs[run_id]
        stored = self.conversations[row.run.conversation_id]
        if row.run.status not in ACTIVE or not _free(row, now):
            return None
        if row.run.queued and stored.waits():
            return None
        if row.run.queued and any(o.run.status in ACTIVE and not o.run.queued for o in stored.runs):
            return None
        row.epoch += 1
        row.owner, row.expires_at = owner, expires_at
        status = row.run.status if row.run.input_version is None else "running"
        row.run = replace(row.run, queued=False, status=status)
        lease = Lease(run_id, owner, row.epoch, expires_at)
        return Claim(lease, row.run, cancel_asked=row.cancel_asked_at is not None)

    def claim_next(self, owner: str, now: datetime, expires_at: datetime, most: int) -> list[Claim]:
        in_order = sorted((run.created_at, run.id) for run in self._takeable(now))
        return self._claim_all([run_id for _, run_id in in_order[:most]], owner, now, expires_at)

    def claim_these(self, run_ids: Sequence[str], owner: str, now: datetime, expires_at: datetime) -> list[Claim]:
        known = [run_id for run_id in run_ids if run_id in self.runs]
        return self._claim_all([run_id for run_id in known if not self.runs[run_id].run.queued], owner, now, expires_at)

    def _claim_all(self, run_ids: Sequence[str], owner: str, now: datetime, expires_at: datetime) -> list[Claim]:
        claims = [self.claim(run_id, owner, now, expires_at) for run_id in run_ids]
        return [claim for claim in claims if claim is not None]

    def _takeable(self, now: datetime) -> list[Run]:
        """Runs that can be claimed, in order. There is one organisation here, so taking turns does not matter."""
        found: list[Run] = []
        for stored in self.conversations.values():
            active = [row for row in stored.runs if row.run.status in ACTIVE]
            if holder := next((row for row in active if not row.run.queued), None):
                found += [holder.run] if _free(holder, now) else []
            elif active and not stored.waits():
                found.append(min((row.run for row in active), key=lambda run: (run.created_at, run.id)))
        return found

    def release(self, lease: Lease) -> None:
        row = self.runs[lease.run_id]
        if row.epoch == lease.epoch and row.run.status in ACTIVE:
            row.owner = row.expires_at = None

    def checkpoint(self, lease: Lease, change: Change, now: datetime) -> Written:
        row = self._fenced(lease)
        stored = self.conversations[row.run.conversation_id]
        if change.rest is not None:
            check_rest(change.rest.status, change.rest.stop_reason)
        self._check(stored, change)
        row.expires_at = lease.expires_at
        row.run = replace(row.run, status=change.rest.status if change.rest else "running", **run_values(change))
        revision = stored.agent_rows.revision
        write(self, stored, row, change, now)
        return Written(row.cancel_asked_at is not None, revision)

    def _fenced(self, lease: Lease) -> RunRow:
        row = self.runs[lease.run_id]
        if (row.owner, row.epoch) != (lease.owner, lease.epoch) or row.run.status not in ACTIVE:
            raise LostLease(f"Run {lease.run_id} is no longer ours (epoch {lease.epoch}).")
        return row

    def _check(self, stored: ConversationRows, change: Change) -> None:
        """Raise if the database would refuse the change, before any of it is written."""
        if change.moves and stored.version != change.version:
            raise StaleSnapshot(f"Conversation {stored.conversation.id} has moved on from version {change.version}.")
        if change.revision is not None and stored.agent_rows.revision != change.revision:
            raise StaleSnapshot(f"Agent {stored.agent_rows.agent.id} has changed since revision {change.revision}.")
        for call in change.new_calls:
            if (call.step_id, call.call.id) in stored.ledger:
                raise UniqueConflict("pk_ledger", "This conflicts with what is stored: ledger")
        if len({(call.step_id, call.call.id) for call in change.new_calls}) < len(change.new_calls):
            raise UniqueConflict("pk_ledger", "This conflicts with what is stored: ledger")
        for edit in change.edits:
            assert edit.before is not None
            if edit.before.value not in [block.value for block in stored.agent_rows.blocks]:
                raise StaleMemory(edit.before.label)
        for call in change.changed_calls:
            before = stored.ledger[call.step_id, call.call.id].call.status
            if before != call.status and call.status not in CALL_CHANGES[before]:
                raise Broken(f"Call {call.call.id} cannot become {call.status} from where it stands.")

    def settle_resting(self, run_id: str, change: Change, now: datetime) -> bool:
        if change.rest is None:
            raise Broken("A waiting run can only be changed by bringing it to rest again.")
        row = self.runs[run_id]
        check_rest(change.rest.status, change.rest.stop_reason)
        asks = row.run.status == "completed" and row.run.stop_reason == "requires_approval"
        if not (asks or _in_queue(row)) or row.run.status not in sources_of(change.rest.status):
            return False
        stored = self.conversations[row.run.conversation_id]
        if row.run.queued and change.moves and not change.rollback:
            self._refuse_if_busy(stored)
        self._check(stored, change)
        row.run = replace(row.run, status=change.rest.status, **run_values(change))
        write(self, stored, row, change, now)
        return True

    def change_idle(self, change: Change, now: datetime) -> None:
        stored = self.conversations[change.conversation_id]
        self._refuse_if_busy(stored)
        self._check(stored, change)
        write(self, stored, None, change, now)

    def append_events(self, pages: Sequence[NewPage], now: datetime) -> list[str]:
        gone: list[str] = []
        for page in pages:
            try:
                self._fenced(page.lease).pages.append((page.first_seq, tuple(page.records)))
            except LostLease:
                gone.append(page.lease.run_id)
        return gone

    def last_event(self, run_id: str) -> int:
        pages = self._row(run_id).pages
        return pages[-1][0] + len(pages[-1][1]) - 1 if pages else 0

    def renew(self, leases: Sequence[Lease]) -> list[str]:
        gone: list[str] = []
        for lease in leases:
            try:
                self._fenced(lease).expires_at = lease.expires_at
            except LostLease:
                gone.append(lease.run_id)
        return gone

    def cancels_asked(self, owner: str) -> list[str]:
        mine = (row for row in self.runs.values() if row.owner == owner and row.run.status in ACTIVE)
        return sorted(row.run.id for row in mine if row.cancel_asked_at is not None)

    def ask_cancel(self, run_id: str, by: str | None, reason: str | None, rollback: bool, now: datetime) -> Run:
        row = self.runs[run_id]
        if row.cancel_asked_at is None:
            row.cancel_asked_at = now
            row.run = replace(row.run, cancel_asked_by=by, cancel_reason=reason, cancel_rollback=rollback)
        return row.run

    def free_leases(self, owners: Sequence[str] | None = None) -> None:
        for row in self.runs.values():
            if row.run.status in ACTIVE and (owners is None or row.owner in owners):
                row.owner = row.expires_at = None

    def set_block(self, agent_id: str, value: str) -> None:
        """A client changes an agent's memory block; in SQL another store does this."""
        mine = next(rows.agent_rows for rows in self.conversations.values() if rows.agent_rows.agent.id == agent_id)
        mine.blocks = tuple(replace(block, value=value) for block in mine.blocks)
        mine.revision += 1

    # ---- deadlines of approvals -------------------------------------------------------------------------------------

    def expired(self, now: datetime) -> list[Due]:
        due: list[Due] = []
        for row in self._passed("expires_at", now):
            if row.on_expiry == "keep":
                row.expires_at = row.warn_at = None
                continue
            due.append(_due(row, self.conversations[row.conversation_id].conversation.org_id))
        return due

    def warn(self, now: datetime) -> list[str]:
        rows = self._passed("warn_at", now)
        for row in rows:
            row.warn_at = None
        return list(dict.fromkeys(self.conversations[row.conversation_id].conversation.org_id for row in rows))

    def _passed(self, moment: str, now: datetime) -> list[CallRow]:
        rows = [
            row
            for stored in self.conversations.values()
            for row in stored.ledger.values()
            if not row.returned and row.call.waiting and (at := getattr(row, moment)) is not None and at <= now
        ]
        return sorted(rows, key=lambda row: getattr(row, moment))


def _free(row: RunRow, now: datetime) -> bool:
    return row.expires_at is None or row.expires_at < now


def _in_queue(row: RunRow) -> bool:
    return row.run.queued and row.run.status == "created"


def _due(row: CallRow, org_id: str) -> Due:
    assert row.expires_at is not None
    assert row.asked_at is not None
    seconds = (row.expires_at - row.asked_at).total_seconds()
    approval_id = f"{row.call.step_id}:{row.call.call.id}"  # in SQL this is a uuid
    assert row.on_expiry is not None
    return Due(approval_id, row.run_id, row.conversation_id, row.call.call.id, row.on_expiry, org_id, seconds)
