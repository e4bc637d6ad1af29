"""Checks the promises of the engine after every step of a simulated history.

The auditor sees every store call when it takes effect, and every model and tool call. It keeps its own records (epochs,
event numbers, statuses, how often each call may be started), so that a rule that the store or the engine forgets is
noticed. Promises are numbered as in the README, under "What it promises".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.core.conversation.messages import ApprovalRequestBody, AssistantBody, Message, SystemBody, ToolReturnsBody
from holdfast.core.errors import Broken
from holdfast.core.lifecycle import ACTIVE, CallStatus, RunStatus, StopReason, check_call_change, check_run_change
from holdfast.core.model import ModelRequest
from holdfast.core.state import Call
from holdfast.core.tools.call_arguments import parse_arguments
from holdfast.ports.stores.run_store import Change, Claim, Lease
from holdfast.ports.toolbox import ToolJob
from simulator.loop import Process
from simulator.rows import ConversationRows, Tables
from simulator.wire import Carried

_STOP = '"message_type":"stop_reason"'


class PromiseBroken(Exception):
    """A promise of the engine does not hold in this history."""


@dataclass(slots=True)
class RunBook:
    conversation_id: str
    status: RunStatus
    queued: bool
    written_at: datetime
    stop: StopReason | None = None
    lease: Lease | None = None
    epoch: int = 0
    next_event: int = 1
    rests: list[int] = field(default_factory=list)  # the numbers of the events with which the run came to rest


@dataclass(slots=True)
class CallBook:
    run_id: str
    call: Call
    status: CallStatus
    may_start: int = 0
    started: int = 0
    approved: bool = False
    under: int = 0  # the epoch that stored the last start
    results: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Auditor:
    tables: Tables
    now: Callable[[], datetime]
    gated: dict[str, frozenset[str]] = field(default_factory=dict)  # by agent
    runs: dict[str, RunBook] = field(default_factory=dict)
    calls: dict[str, CallBook] = field(default_factory=dict)
    running: dict[str, Process] = field(default_factory=dict)  # by idempotency key
    broken: list[str] = field(default_factory=list)
    commits: int = 0
    reached: Counter[str] = field(default_factory=Counter)  # the special cases that this history has reached

    def require(self, holds: bool, promise: int, told: str) -> None:
        if not holds:
            self.broken.append(f"promise {promise}: {told}")

    def check(self) -> None:
        if self.broken:
            raise PromiseBroken(self.broken[0])

    # ---- what the store carried out ---------------------------------------------------------------------------------

    def carried(self, process: Process, done: Carried) -> None:
        self.commits += 1
        if done.error is not None:
            self.reached[type(done.error).__name__] += 1
            return
        match done.name, done.args:
            case "begin", (run, lease, change):
                self._begun(run, lease, change)
            case "claim", (_, _, now, _) if done.answer is not None:
                self._claimed(done.answer, now)
            case ("claim_next", (_, now, _, _)) | ("claim_these", (_, _, now, _)):
                for claim in done.answer:
                    self._claimed(claim, now)
                    self.require(not process.left, 8, f"{claim.run.id} was claimed by a process that had shut down")
            case "release", (lease,) if self.runs[lease.run_id].epoch == lease.epoch:
                self.runs[lease.run_id].lease = None
                self.reached["given back"] += 1
            case "checkpoint", (lease, change):
                self._holds(lease)
                self._changed(lease.run_id, change, epoch=lease.epoch, by=process)
            case "append_events", (pages,):
                for page in pages:
                    if self._is_held(page.lease, done.answer):
                        self._holds(page.lease, extends=False)
                        self._shown(page.lease.run_id, page.first_seq, page.records)
            case "renew", (leases,):
                for lease in leases:
                    if self._is_held(lease, done.answer):
                        self._holds(lease)
            case "settle_resting", (run_id, change) if done.answer:
                book = self.runs[run_id]
                waits = book.stop == "requires_approval" or (book.queued and book.status == "created")
                self.require(waits, 5, f"{run_id} was changed without a lease while {book.status}")
                self._changed(run_id, change, epoch=None, by=None)
            case "change_idle", (change,):
                self._idle(change)
            case "free_leases", (owners,):
                for book in self.runs.values():
                    if book.lease is not None and (owners is None or book.lease.owner in owners):
                        self.reached["handed over" if book.lease.owner == process.name else "freed of the dead"] += 1
                        book.lease = None
            case _:
                pass

    def _begun(self, run: Any, lease: Lease | None, change: Change | None) -> None:
        book = RunBook(run.conversation_id, run.status, run.queued, self.now())
        self.runs[run.id] = book
        if lease is not None:
            book.epoch, book.lease = lease.epoch, lease
        if change is not None:
            self._changed(run.id, change, epoch=book.epoch, by=None)
        self._one_at_a_time(run.conversation_id)

    def _claimed(self, claim: Claim, now: datetime) -> None:
        lease, run_id, book = claim.lease, claim.run.id, self.runs[claim.run.id]
        free = book.lease is None or book.lease.expires_at < now
        self.require(free, 5, f"{run_id} was claimed while it was held: {book.lease}")
        self.require(book.status in ACTIVE, 5, f"{run_id} was claimed at rest")
        self.require(lease.epoch == book.epoch + 1, 5, f"{run_id} got epoch {lease.epoch} after {book.epoch}")
        self.reached["promoted" if book.queued else "taken over"] += 1
        if book.queued:
            self._in_turn(run_id, book)
        book.epoch, book.lease, book.queued, book.status = lease.epoch, lease, False, claim.run.status
        self._one_at_a_time(book.conversation_id)

    def _in_turn(self, run_id: str, book: RunBook) -> None:
        """First in, first out: no run that was queued before this one was sent is still waiting."""
        asked_at = self.tables.runs[run_id].run.created_at
        for other_id, other in self.runs.items():
            waits = other.queued and other.status == "created" and other.conversation_id == book.conversation_id
            if waits and other_id != run_id:
                self.require(other.written_at >= asked_at, 8, f"{run_id} overtook {other_id} in the queue")

    def _is_held(self, lease: Lease, gone: Sequence[str]) -> bool:
        """Whether the store took a write of this lease. If not, its owner must really have lost the run."""
        if lease.run_id not in gone:
            return True
        book = self.runs[lease.run_id]
        lost = book.epoch != lease.epoch or book.status not in ACTIVE or book.lease is None
        self.require(lost, 5, f"{lease.run_id} was refused to its owner (epoch {lease.epoch})")
        self.reached["told that it lost its run"] += 1
        return False

    def _holds(self, lease: Lease, *, extends: bool = True) -> None:
        book = self.runs[lease.run_id]
        self.require(lease.epoch == book.epoch, 5, f"{lease.run_id}: epoch {lease.epoch} wrote during {book.epoch}")
        self.require(book.status in ACTIVE, 5, f"{lease.run_id} was written to at rest ({book.status})")
        self.require(book.lease is not None, 8, f"{lease.run_id} is written by an owner that had released it")
        if extends:
            book.lease = lease

    def _one_at_a_time(self, conversation_id: str) -> None:
        active = [
            run_id
            for run_id, book in self.runs.items()
            if book.conversation_id == conversation_id and book.status in ACTIVE and not book.queued
        ]
        self.require(len(active) <= 1, 5, f"two runs hold {conversation_id}: {active}")

    # ---- one change -------------------------------------------------------------------------------------------------

    def _changed(self, run_id: str, change: Change, *, epoch: int | None, by: Process | None) -> None:
        book = self.runs[run_id]
        if change.events:
            self._shown(run_id, change.first_event, change.events, rests=change.rest is not None)
        for call in change.new_calls:
            self._called(run_id, call, epoch or 0)
        for call in change.changed_calls:
            self._moved(call, epoch or 0)
        for entry in change.audit_entries:
            if entry.kind in ("approved", "edited", "allowed"):
                self.calls[_key(entry.call)].approved = True
        after: RunStatus = book.status if book.queued else "running"
        if change.rest is not None:
            after = change.rest.status
        self._lawful(lambda: check_run_change(book.status, after, book.stop) if after != book.status else None)
        book.status = after
        if change.rest is not None:
            self.reached[f"rests: {change.rest.stop_reason}"] += 1
            book.stop, book.lease = change.rest.stop_reason, None
            self._rested(run_id, change, by, epoch)
        if change.moves:
            self._history_is_valid(self.tables.conversations[change.conversation_id])
        for corner in ("cut", "rollback", "edits", "allow", "system"):
            if getattr(change, corner):
                self.reached[corner] += 1

    def _lawful(self, checked: Callable[[], None]) -> None:
        try:
            checked()
        except Broken as error:
            self.broken.append(f"promise 3: {error}")

    def _called(self, run_id: str, call: Call, epoch: int) -> None:
        key = _key(call)
        self.require(key not in self.calls, 2, f"{key} was proposed twice")
        self.calls[key] = book = CallBook(run_id, call, call.status)
        if call.status == "started":
            book.may_start, book.under = 1, epoch

    def _moved(self, call: Call, epoch: int) -> None:
        book = self.calls[_key(call)]
        self._lawful(lambda: check_call_change(book.status, call.status))
        if call.status == "started":
            again = book.status == "started"
            self.require(
                not again or self._may_repeat(call, book), 2, f"{_key(call)} is run again, and no person was asked"
            )
            book.may_start, book.under = book.may_start + 1, epoch
        if call.status == "settled" and call.executed:
            assert call.result is not None
            text = str(call.result.content)
            told = "Error executing function" in text or any(str(result) in text for result in book.results)
            self.require(told, 2, f"{_key(call)} is settled with a result that its tool never gave: {text}")
        self.reached[f"call: {book.status} to {call.status}"] += 1
        book.status, book.call = call.status, call

    def _may_repeat(self, call: Call, book: CallBook) -> bool:
        """The policy of its tool is to run it again if its outcome is unknown."""
        agent_rows = self.tables.conversations[self.runs[book.run_id].conversation_id].agent_rows
        return any(tool.name == call.call.name and tool.on_unknown == "retry" for tool in agent_rows.tools)

    def _rested(self, run_id: str, change: Change, by: Process | None, epoch: int | None) -> None:
        stored = self.tables.conversations[change.conversation_id]
        turn_id = self.tables.runs[run_id].run.turn_id
        mine = [row for row in stored.ledger.values() if row.turn_id == turn_id and not row.returned]
        if self.runs[run_id].stop == "requires_approval":
            self.require(any(row.call.waiting for row in mine), 3, f"{run_id} waits for nobody")
            self.require(all(row.call.status != "started" for row in mine), 3, f"{run_id} rests with a call started")
        else:
            self.require(not mine, 3, f"{run_id} rests as {self.runs[run_id].stop} with open calls")
        if by is not None and change.rest is not None:
            alive = [
                key
                for key, where in self.running.items()
                if where is by and self.calls[key].run_id == run_id and self.calls[key].under == epoch
            ]
            self.require(not alive, 6, f"{run_id} rests as {change.rest.stop_reason} while {alive} still run")

    def _idle(self, change: Change) -> None:
        active = [
            book
            for book in self.runs.values()
            if book.conversation_id == change.conversation_id and book.status in ACTIVE and not book.queued
        ]
        self.require(not active, 5, f"{change.conversation_id} was changed beside its run")
        self._history_is_valid(self.tables.conversations[change.conversation_id])

    def _shown(self, run_id: str, first: int, records: Sequence[str], *, rests: bool = False) -> None:
        book = self.runs[run_id]
        self.require(first == book.next_event, 7, f"{run_id}: events go from {book.next_event - 1} to {first}")
        for number, record in enumerate(records, first):
            if '"seq_id":' in record and f'"seq_id":{number}' not in record:
                self.broken.append(f"promise 7: record {number} of {run_id} bears another number: {record}")
        stops = sum(_STOP in record for record in records)
        self.require(stops == (1 if rests else 0), 7, f"{run_id}: {stops} stop reasons where {int(rests)} belong")
        book.next_event = first + len(records)
        if rests:
            book.rests.append(book.next_event - 1)

    def _history_is_valid(self, stored: ConversationRows) -> None:
        context = stored.seen()
        self.require(isinstance(context[0].body, SystemBody), 3, f"{stored.conversation.id} lost its system message")
        open_now = {row.call.call.id for row in stored.ledger.values() if not row.returned}
        self.require(
            dangling(context) == (open_now, []), 3, f"{stored.conversation.id}: {dangling(context)}, {open_now}"
        )

    # ---- what models and tools are asked ----------------------------------------------------------------------------

    def model_asked(self, request: ModelRequest) -> None:
        unreturned, wrong = dangling(request.messages)
        self.require(not unreturned and not wrong, 3, f"the model was shown {unreturned} without a return, {wrong}")

    def tool_started(self, process: Process, job: ToolJob) -> None:
        key = job.idempotency_key
        book = self.calls.get(key)
        if book is None:
            self.broken.append(f"promise 2: {key} was started before it was stored as started")
            return
        book.started += 1
        self.running[key] = process
        self.require(book.status == "started", 2, f"{key} was started while {book.status}")
        self.require(
            book.started <= book.may_start, 2, f"{key} was started {book.started} times, {book.may_start} allowed"
        )
        self.require(
            book.approved or job.name not in self.gated[job.agent_id], 9, f"{job.name} ran without being approved"
        )
        asked = parse_arguments(book.call.to_run.arguments, {})
        self.require(dict(job.arguments) == asked, 9, f"{key} ran with {dict(job.arguments)}, not {asked}")

    def tool_gave(self, key: str, result: Any) -> None:
        self.calls[key].results.append(result)

    def tool_ended(self, process: Process, key: str) -> None:
        if self.running.get(key) is process:
            del self.running[key]

    def died(self, process: Process) -> None:
        for key in [key for key, where in self.running.items() if where is process]:
            del self.running[key]


def _key(call: Call) -> str:
    return f"{call.step_id}:{call.call.id}"


def dangling(messages: Sequence[Message]) -> tuple[set[str], list[str]]:
    """Calls without a return, and returns without a call or for the second time."""
    asked: set[str] = set()
    returned: list[str] = []
    for message in messages:
        match message.body:
            case AssistantBody(calls=calls) | ApprovalRequestBody(calls=calls):
                asked.update(call.id for call in calls)
            case ToolReturnsBody(results=results):
                returned.extend(result.call_id for result in results)
            case _:
                pass
    once = set(returned)
    wrong = sorted(once - asked) + (["twice"] if len(once) < len(returned) else [])
    return asked - once, wrong
