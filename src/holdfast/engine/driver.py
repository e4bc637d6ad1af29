"""The driver: performs what the loop wishes for and feeds back what happened, until the run rests.

    decide -> checkpoint -> perform -> decide -> …

One driver works on one run, holding its lease. Every decision is written in one checkpoint before its effects begin,
so a tool is in the ledger as started before it is started. A cancel or a lost lease interrupts all effects under way
(effects.py): tools are killed and the model's connection is closed before the driver says anything more.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from holdfast.core.budget import seconds_spent
from holdfast.core.errors import AskedWrongly, LostLease
from holdfast.core.lifecycle import ACTIVE
from holdfast.core.loop import decide
from holdfast.core.records import Run
from holdfast.core.request import RunRequest
from holdfast.core.state import (
    BudgetSpent,
    CancelAsked,
    Crashed,
    Decision,
    DecisionsGiven,
    Happened,
    ModelReplied,
    State,
    ToolSettled,
    UserSpoke,
)
from holdfast.engine import tool_call
from holdfast.engine.changes import Drawn, draw_up
from holdfast.engine.effects import Effects
from holdfast.engine.journal import Journal
from holdfast.engine.scene import Scene
from holdfast.engine.tenure import Tenure, keep
from holdfast.engine.wiring import Wiring
from holdfast.ports.runs import Change, StaleMemory, StaleSituation
from holdfast.ports.toolbox import MemoryEdit

log = logging.getLogger("holdfast.engine")


class Driver:
    def __init__(
        self,
        wiring: Wiring,
        run: Run,
        request: RunRequest,
        tenure: Tenure,
        scene: Scene,
        state: State,
    ) -> None:
        self._wiring = wiring
        self.run = run
        self._request = request
        self.tenure = tenure
        self._scene = scene
        self._state = state
        self._journal = Journal(wiring.store, wiring.feed, tenure, run.last_event)
        self._effects = Effects(wiring, run, request, tenure, scene, self._journal)
        self._first = False
        self._time_is_over: asyncio.Task[None] | None = None

    # ---- the loop -----------------------------------------------------------------------------------------------

    async def drive(self, decision: Decision) -> None:
        """Go on from a decision that is already written, until the run rests or is no longer ours."""
        await self._to_rest(decision, None)

    async def begin(self, found: Happened) -> None:
        """Begin with what was found: work that somebody left, or input that nobody has looked at yet."""
        self._first = True
        await self._to_rest(None, found)

    async def _to_rest(self, decision: Decision | None, found: Happened | None) -> None:
        wiring = self._wiring
        heart = asyncio.create_task(keep(self.tenure, wiring.store, wiring.clock, wiring.lease_seconds))
        self._time_is_over = self._watch_the_time()
        try:
            if decision is None and found is not None:
                decision = await self._first_decision(found)
            while decision is not None and decision.stop is None:
                if not self.tenure.interrupted.is_set():
                    self._effects.begin(decision.effects, self._state)
                decision = await self._follow(await self._next())
        except LostLease:
            log.info("run %s was taken over by somebody else", self.run.id)
        finally:
            heart.cancel()
            if self._time_is_over is not None:
                self._time_is_over.cancel()
            await self._effects.stop()
            self._wiring.contexts.keep(self._scene)
            self._wiring.feed.close(self.run.id)

    async def _first_decision(self, found: Happened) -> Decision:
        """Input that makes no sense any more fails the run, and touches nobody else's calls."""
        try:
            return await self._follow(found)
        except AskedWrongly as error:
            self._state = replace(self._state, calls=(), follow_ups=())
            return await self._follow(Crashed(str(error)))

    async def _follow(self, happened: Happened) -> Decision:
        decision = decide(self._state, happened)
        try:
            await self._write(decision, happened)
        except StaleMemory as stale:
            return await self._follow(await self._without_its_edits(happened, stale))
        return decision

    async def _without_its_edits(self, happened: Happened, stale: StaleMemory) -> Happened:
        """Somebody changed a memory block while the tool worked on it. Theirs stays; the model sees it and is told."""
        if not isinstance(happened, ToolSettled):
            raise stale
        situation = await self._wiring.store.situation(self._scene.conversation.id, self._scene.version)
        self._scene.blocks = situation.blocks
        self._first = True  # the system message is brought up to date with what the model is told
        return replace(happened, result=tool_call.told_of_stale_memory(happened.result, self._scene, stale.label))

    async def _next(self) -> Happened:
        """What happens next: some work finishes, somebody interrupts, or time is over. Finished work counts first."""
        interrupted = asyncio.create_task(self.tenure.interrupted.wait())
        ends = {interrupted} if self._time_is_over is None else {interrupted, self._time_is_over}
        try:
            done, _ = await asyncio.wait({*ends, *self._effects.under_way}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            interrupted.cancel()
        if self.tenure.error is not None:
            raise self.tenure.error
        finished = next((task for task in self._effects.under_way if task in done), None)
        if finished is not None:
            return self._effects.outcome(finished)
        await self._effects.stop()
        return await self._cancel_asked() if interrupted in done else self._out_of_time()

    def _watch_the_time(self) -> asyncio.Task[None] | None:
        limit = self._state.loadout.terms.budget.max_seconds
        if limit is None:
            return None
        passed = (self._wiring.clock.monotonic_ns() - self._effects.began_ns) / 1e9
        return asyncio.create_task(self._wiring.clock.sleep(max(0.001, limit - passed)))

    def _out_of_time(self) -> Happened:
        spent = seconds_spent(self._state.loadout.terms.budget.max_seconds or 0)
        seen = self._effects.cut_off(spent.stop)
        return BudgetSpent(spent) if seen is None else BudgetSpent(spent, *seen)

    async def _cancel_asked(self) -> Happened:
        """Who asked, and how, is in the run's row, wherever it was asked."""
        self.run = asked = await self._wiring.store.run(self.run.id)
        if asked.status not in ACTIVE:
            raise LostLease(f"Run {asked.id} was brought to rest by somebody else.")
        seen = self._effects.cut_off("cancelled")
        if seen is None:
            return CancelAsked(rollback=asked.cancel_rollback)
        return CancelAsked(*seen, rollback=asked.cancel_rollback)

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    async def _write(self, decision: Decision, happened: Happened) -> None:
        """One decision, one transaction: messages, ledger, step, events, and the run's rest if it comes to that."""
        effects = self._effects
        edits = effects.edits_of(happened)
        if self._state.calls and not decision.state.calls:
            effects.end_tools(cut_off=isinstance(happened, CancelAsked))
        change = await self._written(decision, happened, edits)
        self._scene.edit(edits)
        self._scene.advance(change)
        self._first = False
        self._state = decision.state
        self._journal.written(list(change.events), done=change.rest is not None)
        effects.written(change.step)

    async def _written(self, decision: Decision, happened: Happened, edits: tuple[MemoryEdit, ...]) -> Change:
        """The change as it was written; drawn up anew if the history went on beside us."""
        while True:
            first_event, records = await self._journal.settle()
            change = draw_up(self._drawn(decision, happened, edits, first_event, records))
            lease = self.tenure.renewed()
            try:
                if await self._wiring.store.checkpoint(lease, change):
                    self.tenure.cancel_asked()
            except StaleMemory:
                self._journal.take_back(records)
                raise
            except StaleSituation:
                self._journal.take_back(records)
                if not await self._catches_up():
                    raise
            else:
                self.tenure.kept(lease)
                return change

    async def _catches_up(self) -> bool:
        """Whether our context is still that of the rows: only something that was cancelled in the queue was put into
        the history beside it. Then we go on from there."""
        scene = self._scene
        situation = await self._wiring.store.situation(scene.conversation.id)
        if [message.id for message in situation.context or ()] != [message.id for message in scene.context]:
            return False
        scene.version, scene.next_seq = situation.version, situation.next_seq
        return True

    def _drawn(
        self,
        decision: Decision,
        happened: Happened,
        edits: tuple[MemoryEdit, ...],
        first_event: int,
        records: list[str],
    ) -> Drawn:
        effects = self._effects
        return Drawn(
            decision=decision,
            before=self._state,
            scene=self._scene,
            run=self.run,
            request=self._request,
            now=self._wiring.clock.now(),
            first_event=first_event,
            records=records,
            step=effects.step,
            step_is_new=effects.step_is_new,
            context_tokens=effects.context_tokens,
            duration_ns=self._wiring.clock.monotonic_ns() - effects.began_ns,
            ttft_ns=effects.ttft_ns,
            edits=edits,
            shortened=effects.shortened,
            streamed=self._streamed(happened),
            decided_by=self.run.created_by,
            first=self._first,
            takes_input=isinstance(happened, UserSpoke | DecisionsGiven),
        )

    def _streamed(self, happened: Happened) -> frozenset[str]:
        """The messages whose pieces subscribers have already seen."""
        if self._request.stream_tokens and isinstance(happened, ModelReplied):
            return frozenset({happened.message_id, happened.request_id})
        return frozenset()
