"""The runs that this process drives: begins them, takes what nobody holds, hands over when it leaves.

The run table is the queue (storage/claiming.py). A process looks into it when it is told that there is work, when one
of its own runs has ended, and every half lease in case nobody told it. What one process leaves, by dying, by leaving or
because it is full, another takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any

from holdfast.core.errors import LostLease
from holdfast.core.lifecycle import ACTIVE, can_cancel
from holdfast.core.records import Run
from holdfast.core.request import RunRequest
from holdfast.engine.accepting import Accepted
from holdfast.engine.cancelling import cancel_resting
from holdfast.engine.driver import Driver
from holdfast.engine.takeover import take_over
from holdfast.engine.tenure import Tenure
from holdfast.engine.wiring import LONGEST_REST_SECONDS, Wiring
from holdfast.ports.bus import HintKind
from holdfast.ports.runs import Lease, StaleSituation

log = logging.getLogger("holdfast.engine")

AT_ONCE = 16  # runs taken with one look, so that several processes share what there is

# Whoever looked in vain hears no hint for a while, longer each time, or every hint would wake a whole herd.
FIRST_REST_SECONDS = 0.02

Dead = Callable[[], Sequence[str]]


def rest_seconds(vain: int, longest: float = LONGEST_REST_SECONDS) -> float:
    """The longest rest after so many looks in vain, one after the other."""
    return min(FIRST_REST_SECONDS * 2 ** (vain - 1), longest) if vain else 0.0


def nobody_known() -> Sequence[str]:
    return ()


class Work:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self.driving: dict[str, tuple[asyncio.Task[None], Tenure]] = {}
        self._held: dict[str, str] = {}  # the conversations of the runs that we drive, with those
        self._queued_in: set[str] = set()  # those in which something may wait behind
        self._dead: set[str] = set()  # owners whose leases are to be freed
        self._looking: asyncio.Task[None] | None = None
        self._look = asyncio.Event()
        self._taking = wiring.most_runs > 0
        self._taking_ended_ns: int | None = None
        self._random = Random(wiring.owner)
        self._vain = 0  # looks without a find, one after the other
        self._resting: asyncio.Task[None] | None = None
        self._missed = False  # a hint that came meanwhile
        wiring.bus.hear(self._heard)

    @property
    def room(self) -> int:
        """How many more runs this process would drive."""
        return self._wiring.most_runs - len(self.driving) if self._taking else 0

    # ---- driving ----------------------------------------------------------------------------------------------------

    def drive(self, accepted: Accepted, request: RunRequest) -> None:
        """Drive a run that was accepted here, unless it rests already."""
        if accepted.run.status in ACTIVE:
            tenure = Tenure(accepted.lease, self._wiring.clock, self._wiring.lease_seconds)
            driver = Driver(self._wiring, accepted.run, request, tenure, accepted.scene, accepted.state)
            self._begin(driver, driver.drive(accepted.decision))
            if request.answers is not None:
                self._queued_in.add(accepted.run.conversation_id)  # while a person was asked, others may have come

    def _begin(self, driver: Driver, work: Coroutine[Any, Any, None]) -> None:
        run_id = driver.run.id
        task = asyncio.create_task(self._guarded(driver.run, driver.tenure, work), name=f"drive {run_id}")
        self.driving[run_id] = (task, driver.tenure)
        self._held[driver.run.conversation_id] = run_id

    async def _guarded(self, run: Run, tenure: Tenure, work: Coroutine[Any, Any, None]) -> None:
        """A driver that fails leaves its run to the next look, which finds it as the rows have it. A cancel that came
        just as the run began to wait for a human is carried out on the waiting run."""
        try:
            await work
            if tenure.cancelled:
                await self._cancel_if_waiting(run.id)
        except StaleSituation:
            log.info("run %s is begun anew: its conversation moved on before it began", run.id)
            await self._hand_over(self._wiring.store.release(tenure.renewed()))
        except Exception:
            log.exception("run %s stopped on an error of ours; it will be taken over", run.id)
        finally:
            if (mine := self.driving.get(run.id)) is not None and mine[1] is tenure:
                del self.driving[run.id]
            if self._held.get(run.conversation_id) == run.id:
                del self._held[run.conversation_id]
        was_full = self.room == 1
        if was_full or run.conversation_id in self._queued_in:
            self._queued_in.discard(run.conversation_id)
            self._look.set()

    async def _cancel_if_waiting(self, run_id: str) -> None:
        run = await self._wiring.store.run(run_id)
        if run.status not in ACTIVE and can_cancel(run.status, run.stop_reason):
            await cancel_resting(self._wiring, run, run.cancel_asked_by)

    async def cancel_here(self, run_id: str) -> bool:
        """Stop a run that is driven here, or that nobody drives; False if another process has it."""
        if (driving := self.driving.get(run_id)) is None:
            lease = await self._wiring.store.claim(run_id, self._wiring.owner, *self._lease_times())
            if lease is None:
                return False
            await self._take(lease)
            driving = self.driving.get(run_id)
        if driving is not None:
            task, tenure = driving
            tenure.cancel_asked()
            await asyncio.wait({task})
        return True

    # ---- taking -----------------------------------------------------------------------------------------------------

    def look_soon(self) -> None:
        """There may be something to take, here or elsewhere."""
        self._look.set()
        self._wiring.bus.tell("work", "")

    def queued_in(self, conversation_id: str) -> None:
        """Something waits in this conversation: whoever drives a run of it looks when that ends. It may have ended
        already, while this was being written."""
        self._look_after(conversation_id)
        self._look.set()
        self._wiring.bus.tell("work", conversation_id)

    def _look_after(self, conversation_id: str) -> None:
        if conversation_id in self._held:
            self._queued_in.add(conversation_id)

    def _heard(self, kind: HintKind, about: str) -> None:
        if kind == "work":
            self._look_after(about)
            self._missed = self._resting is not None
            if not self._missed:
                self._look.set()
        elif kind == "cancel" and (driving := self.driving.get(about)) is not None:
            driving[1].cancel_asked()

    async def open(self, *, alone: bool, dead: Dead = nobody_known) -> None:
        """Begin to look for runs that nobody holds. `alone` says that no other process can hold any; `dead` names the
        owners that are known to be dead by now, so that nobody has to wait for their leases to run out."""
        if alone:
            await self._wiring.store.free_leases()
        await self._take_what_there_is(dead)
        self._looking = asyncio.create_task(self._keep_looking(dead), name="looking for work")

    async def _keep_looking(self, dead: Dead) -> None:
        while self._taking_ended_ns is None:
            pause = asyncio.create_task(self._wiring.clock.sleep(self._wiring.lease_seconds / 2))
            told = asyncio.create_task(self._look.wait())
            try:
                await asyncio.wait({pause, told}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
                told.cancel()
            self._look.clear()
            try:
                await self._take_what_there_is(dead)
            except Exception:
                log.exception("looking for work failed; trying again")

    async def _take_what_there_is(self, dead: Dead) -> None:
        self._dead.update(dead())  # each is named once
        if self._dead:
            await self._wiring.store.free_leases(sorted(self._dead))
            self._dead.clear()
        found = False
        while (room := self.room) > 0:
            claimed = await self._wiring.store.claim_next(self._wiring.owner, *self._lease_times(), min(room, AT_ONCE))
            if not claimed:
                break
            found = True
            for lease in claimed:
                await self._take(lease)
        self._rest(0 if found else self._vain + 1)

    def _rest(self, vain: int) -> None:
        """Leave the next hints to others, if they were quicker. What happens in this process is looked at at once."""
        self._vain = vain
        if self._resting is not None:
            self._resting.cancel()
        seconds = rest_seconds(vain, self._wiring.longest_rest_seconds)
        self._resting = asyncio.create_task(self._sleep(seconds)) if seconds else None
        if not seconds:
            self._wake()

    async def _sleep(self, most_seconds: float) -> None:
        await self._wiring.clock.sleep(most_seconds * self._random.random())
        self._resting = None
        self._wake()

    def _wake(self) -> None:
        if self._missed:
            self._missed = False
            self._look.set()

    def _lease_times(self) -> tuple[Any, Any]:
        now = self._wiring.clock.now()
        return now, now + timedelta(seconds=self._wiring.lease_seconds)

    async def _take(self, lease: Lease) -> None:
        """One run that cannot be taken over must not keep the others from it."""
        try:
            await self._end_own(lease.run_id)
            driver, happened = await take_over(self._wiring, lease)
        except LostLease as error:
            log.info("%s", error)
            return
        except Exception:
            log.exception("run %s could not be taken over; trying again later", lease.run_id)
            return
        self._queued_in.add(driver.run.conversation_id)  # more may wait behind it
        self._begin(driver, driver.begin(happened))

    async def _end_own(self, run_id: str) -> None:
        """A run that we still drove when its lease ran out, because this process stood still, is begun anew: what we
        had of it ends first."""
        if (driving := self.driving.get(run_id)) is not None:
            task, tenure = driving
            tenure.lost(LostLease(f"Run {run_id} was taken anew by this process."))
            await asyncio.wait({task})

    # ---- leaving ----------------------------------------------------------------------------------------------------

    def stop_taking(self) -> None:
        """Begin no run from now on; what is accepted here is for others."""
        if self._taking_ended_ns is None:
            self._taking_ended_ns = self._wiring.clock.monotonic_ns()
        self._taking = False
        self._look.set()

    async def close(self, grace_seconds: float = 5.0) -> None:
        """Let runs finish for so long since taking ended, then hand them over; their rows say where they stand."""
        self.stop_taking()
        assert self._taking_ended_ns is not None
        if self._resting is not None:
            self._resting.cancel()
        if self._looking is not None:
            await asyncio.wait({self._looking})  # what a look under way takes is ours to hand over
        left = grace_seconds - (self._wiring.clock.monotonic_ns() - self._taking_ended_ns) * 1e-9
        if driving := {task for task, _ in self.driving.values()}:
            _, late = await asyncio.wait(driving, timeout=max(0.0, left))
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        await self._hand_over(self._wiring.store.hand_over(self._wiring.owner))

    async def _hand_over(self, freeing: Awaitable[None]) -> None:
        with suppress(Exception):  # whoever looks finds the runs anyway, when their leases have run out
            await freeing
        self.look_soon()
