"""Drives the runs of this process: starts them, polls for runs that no process holds, and hands over on shutdown.

The run table is the queue (storage/runs/claims.py). A worker claims the runs that it is told of, and polls the table
when a hint says that there may be more, when it was full and one of its runs has ended, and every half lease in case a
hint was lost. Runs that a process leaves, because it crashed, shut down or is full, are claimed by another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from typing import Any

from holdfast.core.errors import LostLease, StorageDown
from holdfast.core.lifecycle import ACTIVE, can_cancel
from holdfast.core.records import Run
from holdfast.core.run_request import RunRequest
from holdfast.core.state import Decision
from holdfast.engine.cancel.cancel_idle_run import cancel_idle_run
from holdfast.engine.dependencies import LONGEST_BACKOFF_SECONDS, Dependencies
from holdfast.engine.run.accept import Accepted
from holdfast.engine.run.dispatcher import Dispatcher
from holdfast.engine.run.driver import Driver
from holdfast.engine.run.heartbeat import Heartbeat
from holdfast.engine.run.held_lease import HeldLease
from holdfast.engine.run.takeover import take_over
from holdfast.ports.bus import Hint
from holdfast.ports.clock import Clock
from holdfast.ports.stores.run_store import Claim, StaleSnapshot

log = logging.getLogger("holdfast.engine")

CLAIMS_PER_POLL = 16  # so that several processes share a burst
MAX_NOTED_CONVERSATIONS = 10_000
FIRST_BACKOFF_SECONDS = 0.02

CrashedOwners = Callable[[], Sequence[str]]


def no_crashed_owners() -> Sequence[str]:
    return ()


def backoff_seconds(empty_polls: int, longest: float = LONGEST_BACKOFF_SECONDS) -> float:
    """The longest pause after so many polls in a row that found nothing."""
    return min(FIRST_BACKOFF_SECONDS * 2 ** (empty_polls - 1), longest) if empty_polls else 0.0


class Backoff:
    """Delays hints after a poll that found nothing, longer each time: otherwise every hint would wake every worker. A
    hint that arrives during the pause is followed at its end. Events of this process are not hints and are never
    delayed."""

    def __init__(self, clock: Clock, seed: str, longest_seconds: float, poll_now: asyncio.Event) -> None:
        self._clock = clock
        self._random = Random(seed)
        self._longest_seconds = longest_seconds
        self._poll_now = poll_now
        self._empty_polls = 0
        self._pause: asyncio.Task[None] | None = None
        self._hint_waits = False

    def hint(self) -> None:
        if self._pause is None:
            self._poll_now.set()
        else:
            self._hint_waits = True

    def polled(self, *, found: bool) -> None:
        self._empty_polls = 0 if found else self._empty_polls + 1
        self.cancel()
        seconds = backoff_seconds(self._empty_polls, self._longest_seconds)
        if seconds:
            self._pause = asyncio.create_task(self._sleep(seconds))
        else:
            self._follow_hint()

    async def _sleep(self, most_seconds: float) -> None:
        await self._clock.sleep(most_seconds * self._random.random())
        self._pause = None
        self._follow_hint()

    def _follow_hint(self) -> None:
        if self._hint_waits:
            self._hint_waits = False
            self._poll_now.set()

    def cancel(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None


class Worker:
    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self.driving: dict[str, tuple[asyncio.Task[None], HeldLease]] = {}
        self._maybe_queued: dict[str, None] = {}  # conversations in which a run may wait behind another
        self._crashed: set[str] = set()  # owners whose leases are to be released
        self._offered: dict[str, str] = {}  # runs that this process was told of, and by which process
        self._polling: set[asyncio.Task[None]] = set()
        self._claiming = asyncio.Lock()  # one claim at a time, so that there are never more runs than slots
        self._poll_now = asyncio.Event()
        self._was_offered = asyncio.Event()
        self._takes_runs = deps.most_runs > 0
        self._draining_since_ns: int | None = None
        self._backoff = Backoff(deps.clock, deps.owner, deps.longest_backoff_seconds, self._poll_now)
        self._dispatcher = Dispatcher(deps.store, deps.bus, deps.clock, deps.owner)
        self._heartbeat = Heartbeat(deps)
        deps.bus.subscribe(self._received)

    @property
    def free_slots(self) -> int:
        """How many more runs this process would drive."""
        return self._deps.most_runs - len(self.driving) if self._takes_runs else 0

    # ---- driving ----------------------------------------------------------------------------------------------------

    def drive(self, accepted: Accepted, request: RunRequest) -> None:
        """Drive a run that was accepted here, unless it has come to rest already."""
        if accepted.run.status in ACTIVE:
            held_lease = HeldLease(accepted.lease, self._deps.clock, self._deps.lease_seconds)
            driver = Driver(accepted.session, accepted.run, held_lease, accepted.run.last_event)
            self._start(driver, driver.drive(accepted.decision))
            if request.answers is not None:  # runs may have been queued while a person was asked
                self._note_queued(accepted.run.conversation_id)

    def _start(self, driver: Driver, work: Coroutine[Any, Any, None]) -> None:
        run_id = driver.run.id
        task = asyncio.create_task(self._guard(driver.run, driver.held_lease, work), name=f"drive {run_id}")
        self.driving[run_id] = (task, driver.held_lease)
        self._heartbeat.hold(driver.held_lease)
        self._deps.bus.offer_slots(self.free_slots)

    async def _guard(self, run: Run, held_lease: HeldLease, work: Coroutine[Any, Any, None]) -> None:
        """Run a driver. If it fails, its run is left to the next poll, which continues from the rows. A cancel that
        arrived just as the run began to wait for a person is carried out on the waiting run."""
        try:
            await work
            if held_lease.cancelled:
                await self._cancel_if_waiting(run.id)
        except StaleSnapshot:
            log.info("run %s is started again: its conversation changed before the run began", run.id)
            with suppress(Exception):  # others find the run when its lease has run out
                await self._deps.store.release(held_lease.renewed())
            self.poll_soon()
        except StorageDown as error:
            log.error("run %s stopped; it will be taken over. %s", run.id, error)
        except Exception:
            log.exception("run %s stopped because of a bug in the server; it will be taken over", run.id)
        finally:
            self._heartbeat.let_go(held_lease)
            if (mine := self.driving.get(run.id)) is not None and mine[1] is held_lease:
                del self.driving[run.id]
        self._deps.bus.offer_slots(self.free_slots)
        if run.accepted_by not in (None, self._deps.owner):
            self._deps.bus.send(Hint("slots"), to=run.accepted_by)
        was_full = self.free_slots == 1
        if was_full or run.conversation_id in self._maybe_queued:
            self._maybe_queued.pop(run.conversation_id, None)
            self._poll_now.set()

    async def _cancel_if_waiting(self, run_id: str) -> None:
        run = await self._deps.store.run(run_id)
        if run.status not in ACTIVE and can_cancel(run.status, run.stop_reason):
            await cancel_idle_run(self._deps, run, run.cancel_asked_by)

    async def cancel_here(self, asked: Run) -> bool:
        """Cancel a run that this process drives, or that none does. False if another process drives it. `asked` has the
        cancel request."""
        if (driving := self.driving.get(asked.id)) is None:
            claim = await self._deps.store.claim(asked.id, self._deps.owner, *self._lease_times())
            if claim is None:
                return False
            await self._take_over(claim)
            driving = self.driving.get(asked.id)
        if driving is not None:
            task, held_lease = driving
            held_lease.cancel_asked(asked)
            await asyncio.wait({task})
        return True

    # ---- polling ----------------------------------------------------------------------------------------------------

    def run_accepted(self, run_id: str) -> None:
        """Called when a run was accepted for another process to drive."""
        self._dispatcher.dispatch(run_id)

    def poll_soon(self) -> None:
        """Poll soon, here or in another process: there may be a run to claim."""
        if self.free_slots > 0:
            self._poll_now.set()
        else:
            self._dispatcher.dispatch()

    def run_queued(self, conversation_id: str) -> None:
        """Called when a run was queued in this conversation. The process that drives its active run polls when that run
        ends; it may have ended already, while the queued one was being written."""
        self._note_queued(conversation_id)
        self._deps.bus.send(Hint("queued", conversation_id))
        self.poll_soon()

    def _note_queued(self, conversation_id: str) -> None:
        """To be forgotten costs a queued run time, until the next poll."""
        self._maybe_queued[conversation_id] = None
        while len(self._maybe_queued) > MAX_NOTED_CONVERSATIONS:
            del self._maybe_queued[next(iter(self._maybe_queued))]

    def _received(self, hint: Hint) -> None:
        self._dispatcher.received(hint)
        match hint.kind:
            case "work" if hint.about and self.free_slots > 0:
                self._offered[hint.about] = hint.sender
                self._was_offered.set()
            case "work" if hint.about:
                self._deps.bus.send(Hint("declined", hint.about), to=hint.sender)
            case "work" if self.free_slots > 0:
                self._backoff.hint()
                if hint.sender:
                    self._deps.bus.send(Hint("slots"), to=hint.sender)
            case "queued":
                self._note_queued(hint.about)
            case "cancel" if (driving := self.driving.get(hint.about)) is not None:
                driving[1].cancel_asked()

    async def open(self, *, alone: bool, crashed: CrashedOwners = no_crashed_owners) -> None:
        """Begin to poll. `alone` says that no other process can hold a lease. `crashed` returns owners that are known
        to have crashed, so that their runs need not wait until the leases expire."""
        if alone:
            await self._deps.store.free_leases()
        await self._poll(crashed)
        self._deps.bus.offer_slots(self.free_slots)
        if self.free_slots > 0:
            self._deps.bus.send(Hint("slots"))
        self._polling = {
            asyncio.create_task(self._keep_polling(crashed), name="polling for work"),
            asyncio.create_task(self._keep_claiming_offered(), name="claiming offered runs"),
        }

    async def _keep_polling(self, crashed: CrashedOwners) -> None:
        while not self.is_draining:
            pause = asyncio.create_task(self._deps.clock.sleep(self._deps.lease_seconds / 2))
            asked = asyncio.create_task(self._poll_now.wait())
            try:
                await asyncio.wait({pause, asked}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
                asked.cancel()
            self._poll_now.clear()
            try:
                await self._poll(crashed)
            except Exception:
                log.exception("polling for work failed; trying again")

    async def _poll(self, crashed: CrashedOwners) -> None:
        self._crashed.update(crashed())  # each owner is named once
        if self._crashed:
            await self._deps.store.free_leases(sorted(self._crashed))
            self._crashed.clear()
        found = False
        async with self._claiming:
            while (slots := self.free_slots) > 0:
                most = min(slots, CLAIMS_PER_POLL)
                claims = await self._deps.store.claim_next(self._deps.owner, *self._lease_times(), most)
                found = found or bool(claims)
                for claim in claims:  # others may be queued behind a run that was found by polling
                    self._note_queued(claim.run.conversation_id)
                await asyncio.gather(*(self._take_over(claim) for claim in claims))
                if len(claims) < most:
                    break
        self._backoff.polled(found=found)

    async def _keep_claiming_offered(self) -> None:
        while self._draining_since_ns is None:
            await self._was_offered.wait()
            self._was_offered.clear()
            try:
                async with self._claiming:
                    await self._claim_offered()
            except Exception:
                log.exception("runs that this process was told of could not be claimed; others find them")

    async def _claim_offered(self) -> None:
        """Claim the runs that this process was told of, as far as there are free slots. Declined runs, and those that
        cannot be claimed now, are found by others."""
        offered, self._offered = self._offered, {}
        for run_id in list(offered)[max(0, self.free_slots) :]:
            self._deps.bus.send(Hint("declined", run_id), to=offered.pop(run_id))
        if offered:
            claims = await self._deps.store.claim_these(list(offered), self._deps.owner, *self._lease_times())
            await asyncio.gather(*(self._take_over(claim) for claim in claims))

    def _lease_times(self) -> tuple[datetime, datetime]:
        now = self._deps.clock.now()
        return now, now + timedelta(seconds=self._deps.lease_seconds)

    async def _take_over(self, claim: Claim) -> None:
        """Take over a claimed run. A failure here must not prevent the takeover of the others."""
        try:
            await self._end_own_driver(claim.run.id)
            driver, first = await take_over(self._deps, claim)
        except LostLease as error:
            log.info("%s", error)
            return
        except Exception:
            log.exception("run %s could not be taken over; trying again later", claim.run.id)
            return
        self._start(driver, driver.drive(first) if isinstance(first, Decision) else driver.begin(first))

    async def _end_own_driver(self, run_id: str) -> None:
        """End the old driver of a run that this process has claimed a second time, after it was suspended past its own
        lease."""
        if (driving := self.driving.get(run_id)) is not None:
            task, held_lease = driving
            held_lease.lost(LostLease(f"Run {run_id} was claimed again by this process."))
            await asyncio.wait({task})

    # ---- graceful shutdown ------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Start no further run; runs that are accepted here from now on are for other processes."""
        if not self.is_draining:
            self._draining_since_ns = self._deps.clock.monotonic_ns()
        self._takes_runs = False
        self._deps.bus.offer_slots(0)
        self._deps.bus.send(Hint("slots"))
        self._poll_now.set()
        self._was_offered.set()

    @property
    def is_draining(self) -> bool:
        return self._draining_since_ns is not None

    async def close(self, grace_seconds: float = 5.0) -> None:
        """Let runs finish for `grace_seconds` since draining began, then release the leases of the others."""
        self.drain()
        assert self._draining_since_ns is not None
        self._backoff.cancel()
        self._dispatcher.close()
        if self._polling:
            await asyncio.wait(self._polling)  # a poll under way may still claim runs, which are handed over too
        left = grace_seconds - (self._deps.clock.monotonic_ns() - self._draining_since_ns) * 1e-9
        if driving := {task for task, _ in self.driving.values()}:
            _, late = await asyncio.wait(driving, timeout=max(0.0, left))
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        self._heartbeat.close()
        with suppress(Exception):  # others find the runs when their leases have run out
            await self._deps.store.hand_over(self._deps.owner)
        self._deps.bus.send(Hint("work"))
