"""The engine: accepts requests as durable runs, drives them, lets anyone follow, cancels, and takes over.

A request is decided before it is accepted, so one that makes no sense (nothing waits for that approval, another run
holds the conversation) changes nothing. Once `start` returns, the run survives the death of this process. Answering
at once, streaming and leaving a run in the background are all `start` plus, or without, `follow`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any

from holdfast.core.errors import ConversationBusy, PendingApproval
from holdfast.core.lifecycle import ACTIVE, can_cancel
from holdfast.core.records import Actor, Run
from holdfast.core.request import RunRequest
from holdfast.engine.accepting import accept, denying_what_waits, enqueue
from holdfast.engine.cancelling import cancel_resting
from holdfast.engine.driver import Driver
from holdfast.engine.feed import Batch
from holdfast.engine.once import once
from holdfast.engine.takeover import take_over
from holdfast.engine.tenure import Tenure
from holdfast.engine.wiring import Wiring
from holdfast.ports.runs import KnownRequest, StaleSituation

log = logging.getLogger("holdfast.engine")

MAX_LOOKS = 5  # how often a conversation may change between looking at it and writing to it


class Engine:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._driving: dict[str, tuple[asyncio.Task[None], Tenure]] = {}
        self._queued_in: set[str] = set()  # conversations for which this process has queued something
        self._sweeping: asyncio.Task[None] | None = None

    # ---- accepting ------------------------------------------------------------------------------------------------

    async def start(self, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
        """Accept a request and begin to drive it. Raises what is wrong with it, and then nothing has changed. A request
        that was accepted before is not accepted again: its run is given."""
        store = self._wiring.store
        return await once(store, conversation_id, request, lambda: self._start(actor, conversation_id, request))

    async def _start(self, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
        for _ in range(MAX_LOOKS):
            try:
                accepted = await accept(self._wiring, actor, conversation_id, request)
            except StaleSituation:
                self._wiring.contexts.forget(conversation_id)
            except PendingApproval:
                if request.when_busy == "queue":
                    return await self._queued(actor, conversation_id, request)
                if request.when_busy == "reject":
                    raise
                request = await denying_what_waits(self._wiring, conversation_id, request)
            except ConversationBusy as busy:
                if request.when_busy == "queue":
                    return await self._queued(actor, conversation_id, request)
                if request.when_busy != "interrupt" or busy.run_id is None:
                    raise
                await self.cancel(await self._wiring.store.run(busy.run_id), actor.user_id, "a new message came")
            else:
                if accepted.run.status in ACTIVE:
                    tenure = Tenure(accepted.lease, self._wiring.clock, self._wiring.lease_seconds)
                    driver = Driver(self._wiring, accepted.run, request, tenure, accepted.scene, accepted.state)
                    self._drive(driver, driver.drive(accepted.decision))
                return accepted.run
        raise ConversationBusy(None)

    async def _queued(self, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
        run = await enqueue(self._wiring, actor, conversation_id, request)
        self._queued_in.add(conversation_id)
        await self._promote()  # the run in front may have ended while this one was being written
        return run

    # ---- driving ----------------------------------------------------------------------------------------------------

    def _drive(self, driver: Driver, work: Coroutine[Any, Any, None]) -> None:
        run_id = driver.run.id
        task = asyncio.create_task(self._guarded(driver.run, driver.tenure, work), name=f"drive {run_id}")
        self._driving[run_id] = (task, driver.tenure)

    async def _guarded(self, run: Run, tenure: Tenure, work: Coroutine[Any, Any, None]) -> None:
        """A driver that fails leaves its run to the next sweep, which finds it as the rows have it. A cancel that came
        just as the run began to wait for a human is carried out on the waiting run."""
        try:
            await work
            if tenure.cancelled:
                await self._cancel_if_waiting(run.id)
        except Exception:
            log.exception("run %s stopped on an error of ours; it will be taken over", run.id)
        finally:
            self._driving.pop(run.id, None)
        await self._promote_in(run.conversation_id)

    async def _cancel_if_waiting(self, run_id: str) -> None:
        run = await self._wiring.store.run(run_id)
        if run.status not in ACTIVE and can_cancel(run.status, run.stop_reason):
            await cancel_resting(self._wiring, run, run.cancel_asked_by)

    async def _promote_in(self, conversation_id: str) -> None:
        if conversation_id in self._queued_in:
            self._queued_in.discard(conversation_id)
            await self._promote()

    async def _promote(self) -> None:
        """Begin whatever has waited for a conversation that is free now."""
        for run_id in await self._wiring.store.promotable():
            await self._take_over(run_id)

    async def known_request(self, conversation_id: str, keys: Sequence[str]) -> KnownRequest | None:
        """The run that a request with one of these names became."""
        return await self._wiring.store.known_request(conversation_id, keys)

    def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Batch, None]:
        """The run's records after a cursor, live to its end."""
        return self._wiring.feed.follow(run_id, after)

    # ---- cancelling -------------------------------------------------------------------------------------------------

    async def cancel(
        self, run: Run, by: str | None = None, reason: str | None = None, *, rollback: bool = False
    ) -> bool:
        """Stop a run wherever it is; True if it is cancelled or was finished anyway. Asking twice is asking once."""
        if not can_cancel(run.status, run.stop_reason):
            return True
        run = await self._wiring.store.ask_cancel(run.id, by, reason, rollback)
        if run.queued or run.status not in ACTIVE:
            done = await cancel_resting(self._wiring, run, by)
            await self._promote_in(run.conversation_id)
            return done
        if (driving := self._driving.get(run.id)) is not None:
            task, tenure = driving
            tenure.cancel_asked()
            await asyncio.wait({task})
        return True

    # ---- taking over ------------------------------------------------------------------------------------------------

    async def open(self, *, alone: bool) -> None:
        """Begin to look after runs that nobody holds. `alone` says that no other process can hold any."""
        if alone:
            await self._wiring.store.free_leases()
        await self._sweep()
        self._sweeping = asyncio.create_task(self._keep_sweeping())

    async def _keep_sweeping(self) -> None:
        while True:
            await self._wiring.clock.sleep(self._wiring.lease_seconds / 2)
            try:
                await self._sweep()
            except Exception:
                log.exception("looking for abandoned runs failed; trying again")

    async def _sweep(self) -> None:
        for run_id in await self._wiring.store.abandoned(self._wiring.clock.now()):
            if run_id not in self._driving:
                await self._take_over(run_id)
        await self._promote()

    async def _take_over(self, run_id: str) -> None:
        """One run that cannot be taken over must not keep the others from it."""
        try:
            taken = await take_over(self._wiring, run_id)
        except Exception:
            log.exception("run %s could not be taken over; trying again later", run_id)
            return
        if taken is not None:
            driver, happened = taken
            self._queued_in.add(driver.run.conversation_id)  # more may wait behind it
            self._drive(driver, driver.begin(happened))

    # ---- leaving ----------------------------------------------------------------------------------------------------

    async def close(self, grace_seconds: float = 5.0) -> None:
        """Let runs finish for a while, then leave them to whoever comes next; their rows say where they stand."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        tasks = {task for task, _ in self._driving.values()}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
