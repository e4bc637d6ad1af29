"""The engine: accepts requests as durable runs, drives them, lets anyone follow, cancels, and takes over.

A request is decided before it is accepted, so one that makes no sense (nothing waits for that approval, another run
holds the conversation) changes nothing. Once `start` returns, the run survives the death of this process. Answering
at once, streaming and leaving a run in the background are all `start` plus, or without, `follow`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any

from holdfast.core.errors import ConversationBusy
from holdfast.core.lifecycle import ACTIVE, can_cancel
from holdfast.core.loop import decide
from holdfast.core.records import Actor, Run
from holdfast.core.request import RunRequest
from holdfast.core.state import CancelAsked, Crashed, Happened, Recovered
from holdfast.engine import stream
from holdfast.engine.changes import Drawn, draw_up
from holdfast.engine.driver import Driver
from holdfast.engine.feed import Batch
from holdfast.engine.loading import scene_of, state_of
from holdfast.engine.tenure import Tenure
from holdfast.engine.wiring import Wiring
from holdfast.ports.ids import new_id, new_reply_ids
from holdfast.ports.runs import Lease, StaleSituation

log = logging.getLogger("holdfast.engine")

MAX_TAKEOVERS = 10
MAX_LOOKS = 5  # how often a conversation may change between looking at it and writing to it


class Engine:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._driving: dict[str, tuple[asyncio.Task[None], Tenure]] = {}
        self._sweeping: asyncio.Task[None] | None = None

    # ---- accepting ------------------------------------------------------------------------------------------------

    async def start(self, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
        """Accept a request and begin to drive it. Raises what is wrong with it, and then nothing has changed."""
        for _ in range(MAX_LOOKS):
            try:
                return await self._try_start(actor, conversation_id, request)
            except StaleSituation:
                self._wiring.contexts.forget(conversation_id)
        raise ConversationBusy(None)

    async def _try_start(self, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
        wiring = self._wiring
        situation, context = await wiring.contexts.load(wiring.store, conversation_id)
        scene = scene_of(situation, context, request)
        state = state_of(situation, scene, request)
        decision = decide(state, request.happened())
        run = self._new_run(actor, situation.agent.project_id, situation.turn_id, scene.agent.base_template_id, request)
        run = replace(
            run,
            agent_id=scene.agent.id,
            conversation_id=conversation_id,
            in_default_conversation=scene.conversation.is_default,
        )
        lease = Lease(run.id, wiring.owner, 1, wiring.clock.now() + timedelta(seconds=wiring.lease_seconds))
        opening = stream.ping_record(run.id, 1, run.created_at, new_id("ping"))
        facts = Drawn(
            decision=decision,
            before=state,
            scene=scene,
            run=run,
            request=request,
            now=wiring.clock.now(),
            first_event=1,
            records=[opening],
        )
        change = replace(draw_up(facts), system=scene.fresh_system())
        await wiring.store.begin(run, lease, change)
        scene.advance(change)
        run = replace(run, last_event=len(change.events))
        if change.rest is not None:
            return replace(run, status=change.rest.status, stop_reason=change.rest.stop_reason)
        wiring.feed.open(run.id, 0)
        wiring.feed.publish(run.id, change.events)
        driver = Driver(wiring, run, request, self._tenure(lease), scene, decision.state)
        self._drive(driver, driver.drive(decision))
        return run

    def _new_run(
        self, actor: Actor, project_id: str | None, turn_id: str | None, template_id: str | None, request: RunRequest
    ) -> Run:
        run_id = new_id("run")
        return Run(
            id=run_id,
            org_id=actor.org_id,
            agent_id="",
            conversation_id="",
            status="running",
            created_at=self._wiring.clock.now(),
            turn_id=turn_id or run_id,
            background=request.background,
            request=request.to_json(),
            metadata={"run_type": request.run_type},
            callback_url=request.callback_url,
            project_id=project_id,
            base_template_id=template_id,
            created_by=actor.user_id,
        )

    # ---- driving ----------------------------------------------------------------------------------------------------

    def _tenure(self, lease: Lease) -> Tenure:
        return Tenure(lease, self._wiring.clock, self._wiring.lease_seconds)

    def _drive(self, driver: Driver, work: Coroutine[Any, Any, None]) -> None:
        run_id = driver.run.id
        task = asyncio.create_task(_guarded(run_id, work), name=f"drive {run_id}")
        self._driving[run_id] = (task, driver.tenure)
        task.add_done_callback(lambda _: self._driving.pop(run_id, None))

    def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Batch, None]:
        """The run's records after a cursor, live to its end."""
        return self._wiring.feed.follow(run_id, after)

    # ---- cancelling -------------------------------------------------------------------------------------------------

    async def cancel(self, run: Run, by: str | None = None, reason: str | None = None) -> bool:
        """Stop a run wherever it is; True if it is cancelled or was finished anyway. Asking twice is asking once."""
        if not can_cancel(run.status, run.stop_reason):
            return True
        await self._wiring.store.ask_cancel(run.id, by, reason, self._wiring.clock.now())
        if run.status not in ACTIVE:
            return await self._cancel_waiting(run)
        if (driving := self._driving.get(run.id)) is not None:
            task, tenure = driving
            tenure.cancel_asked()
            await asyncio.wait({task})
        return True

    async def _cancel_waiting(self, run: Run) -> bool:
        """Nobody drives a run that waits for a human: deny what waits, in one change, unless it was just answered."""
        wiring = self._wiring
        for _ in range(MAX_LOOKS):
            situation, context = await wiring.contexts.load(wiring.store, run.conversation_id)
            if not any(call.waiting for call in situation.calls):
                return True
            request = RunRequest.from_json(run.request)
            scene = scene_of(situation, context, request)
            state = state_of(situation, scene, request)
            decision = decide(state, CancelAsked())
            facts = Drawn(
                decision=decision,
                before=state,
                scene=scene,
                run=run,
                request=request,
                now=wiring.clock.now(),
                first_event=run.last_event + 1,
                duration_ns=run.total_duration_ns or 0,
            )
            try:
                return await wiring.store.settle_waiting(run.id, draw_up(facts))
            except StaleSituation:
                wiring.contexts.forget(run.conversation_id)
        raise ConversationBusy(None)

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

    async def _take_over(self, run_id: str) -> None:
        wiring, now = self._wiring, self._wiring.clock.now()
        lease = await wiring.store.claim(run_id, wiring.owner, now, now + timedelta(seconds=wiring.lease_seconds))
        if lease is None:
            return
        run = await wiring.store.run(run_id)
        request = RunRequest.from_json(run.request)
        wiring.contexts.forget(run.conversation_id)
        situation, context = await wiring.contexts.load(wiring.store, run.conversation_id)
        scene = scene_of(situation, context, request)
        steps = sum(step.status == "success" for step in await wiring.store.run_steps(run_id))
        follow_ups = request.messages if request.answers is not None and situation.calls else ()
        state = state_of(situation, scene, request, steps=steps, follow_ups=follow_ups)
        wiring.feed.open(run_id, run.last_event)
        driver = Driver(wiring, run, request, self._tenure(lease), scene, state)
        log.info("taking over run %s", run_id)
        found: Happened = Recovered(new_reply_ids()[1])
        if lease.epoch > MAX_TAKEOVERS:
            found = Crashed(f"Run {run_id} was taken over {MAX_TAKEOVERS} times and never got any further.")
        self._drive(driver, driver.recover(found))

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


async def _guarded(run_id: str, work: Coroutine[Any, Any, None]) -> None:
    """A driver that fails leaves its run to the next sweep, which finds it as the rows have it."""
    try:
        await work
    except asyncio.CancelledError:
        raise
    except Exception:
        log.exception("run %s stopped on an error of ours; it will be taken over", run_id)
