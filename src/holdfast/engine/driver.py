"""The driver: performs what the loop wishes for and feeds back what happened, until the run rests.

    decide -> checkpoint -> perform -> decide -> …

One driver works on one run, holding its lease. Every decision is written in one checkpoint before its effects begin,
so a tool is in the ledger as started before it is started. Work under way (a model call, some tools) is a set of
tasks; whichever finishes first happens first. A cancel or a lost lease interrupts them all: tools are killed and the
model's connection is closed before the driver says anything more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.core.budget import seconds_spent
from holdfast.core.compaction import CompactionSettings
from holdfast.core.errors import AskedWrongly, LostLease
from holdfast.core.lifecycle import ACTIVE, StopReason
from holdfast.core.loop import decide
from holdfast.core.messages import Part, ToolReturnsBody
from holdfast.core.outward import Wire
from holdfast.core.records import Run, Step
from holdfast.core.request import RunRequest
from holdfast.core.state import (
    BudgetSpent,
    Call,
    CallModel,
    CancelAsked,
    Compact,
    Compacted,
    CompactionFailed,
    Crashed,
    Decision,
    DecisionsGiven,
    Effect,
    Happened,
    ModelFailed,
    ModelReplied,
    RunTools,
    State,
    ToolSettled,
    UserSpoke,
)
from holdfast.engine import compaction, model_call, stream, tool_call
from holdfast.engine.changes import Drawn, draw_up
from holdfast.engine.journal import Journal
from holdfast.engine.model_call import ModelCall
from holdfast.engine.scene import Scene
from holdfast.engine.tenure import Tenure, began_ns
from holdfast.engine.wiring import Wiring
from holdfast.ports.ids import new_id
from holdfast.ports.runs import StaleMemory
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
        self._handle = model_call.handle_of(scene.agent, scene.conversation, request)
        self._work: set[asyncio.Task[Happened]] = set()
        self._began_ns = began_ns(run, wiring.clock)
        self._call: ModelCall | None = None
        self._traced: ModelCall | None = None  # to be traced once its step is written
        self._step: Step | None = None
        self._last_step: Step | None = None
        self._tools_began_ns: int | None = None
        self._context_tokens: int | None = None
        self._ttft_ns = run.ttft_ns
        self._edits: dict[str, tuple[MemoryEdit, ...]] = {}  # by call, until its result is written
        self._first = False
        self._shortened: compaction.Shortened | None = None
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
        heart = asyncio.create_task(self._keep_lease())
        self._time_is_over = self._watch_the_time()
        try:
            if decision is None and found is not None:
                decision = await self._first_decision(found)
            while decision is not None and decision.stop is None:
                if not self.tenure.interrupted.is_set():
                    self._begin(decision.effects)
                decision = await self._follow(await self._next())
        except LostLease:
            log.info("run %s was taken over by somebody else", self.run.id)
        finally:
            heart.cancel()
            if self._time_is_over is not None:
                self._time_is_over.cancel()
            await self._stop_work()
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
            done, _ = await asyncio.wait({*ends, *self._work}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            interrupted.cancel()
        if self.tenure.error is not None:
            raise self.tenure.error
        finished = next((task for task in self._work if task in done), None)
        if finished is not None:
            self._work.discard(finished)
            return self._outcome(finished)
        await self._stop_work()
        return await self._cancel_asked() if interrupted in done else self._out_of_time()

    def _watch_the_time(self) -> asyncio.Task[None] | None:
        limit = self._state.loadout.terms.budget.max_seconds
        if limit is None:
            return None
        passed = (self._wiring.clock.monotonic_ns() - self._began_ns) / 1e9
        return asyncio.create_task(self._wiring.clock.sleep(max(0.001, limit - passed)))

    def _out_of_time(self) -> Happened:
        spent = seconds_spent(self._state.loadout.terms.budget.max_seconds or 0)
        seen = self._cut_off(spent.stop)
        return BudgetSpent(spent) if seen is None else BudgetSpent(spent, *seen)

    def _cut_off(self, stop: StopReason) -> tuple[tuple[Part, ...], str, str] | None:
        """What was seen of a reply that is still coming, with its step and its message; its step ends here."""
        call, self._call = self._call, None
        if call is None:
            return None
        self._step, self._traced = replace(self._step_row(call), status="cancelled", stop_reason=stop), call
        return call.unfolding.seen(), call.step_id, call.message_id

    async def _cancel_asked(self) -> Happened:
        """Who asked, and how, is in the run's row, wherever it was asked."""
        self.run = asked = await self._wiring.store.run(self.run.id)
        if asked.status not in ACTIVE:
            raise LostLease(f"Run {asked.id} was brought to rest by somebody else.")
        seen = self._cut_off("cancelled")
        if seen is None:
            return CancelAsked(rollback=asked.cancel_rollback)
        return CancelAsked(*seen, rollback=asked.cancel_rollback)

    def _outcome(self, task: asyncio.Task[Happened]) -> Happened:
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, LostLease):
            raise error
        log.error("run %s: unexpected %r", self.run.id, error, exc_info=error)
        return Crashed(f"{type(error).__name__}: {error}")

    async def _stop_work(self) -> None:
        """Nothing of ours runs on: tools are dead and connections closed when this returns."""
        for task in self._work:
            task.cancel()
        if self._work:
            await asyncio.wait(self._work)
        self._work.clear()

    async def _keep_lease(self) -> None:
        """A heartbeat for the times when no checkpoint renews the lease, as while a tool runs long."""
        while True:
            await self._wiring.clock.sleep(self._wiring.lease_seconds / 3)
            try:
                await self._renew()
            except LostLease as error:
                self.tenure.lost(error)
                return
            except Exception:
                log.exception("the lease of run %s could not be renewed; trying again", self.run.id)

    async def _renew(self) -> None:
        lease = self.tenure.renewed()
        if await self._wiring.store.renew(lease):
            self.tenure.cancel_asked()
        self.tenure.kept(lease)

    # ---- effects ------------------------------------------------------------------------------------------------

    def _begin(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case CallModel():
                    self._work.add(asyncio.create_task(self._call_model(effect)))
                case RunTools():
                    self._tools_began_ns = self._tools_began_ns or self._wiring.clock.monotonic_ns()
                    for call in effect.calls:
                        filled = effect.prefilled.get(call.call.id, {})
                        self._work.add(asyncio.create_task(self._run_tool(call, filled)))
                case Compact():
                    self._work.add(asyncio.create_task(self._compact(effect)))

    async def _call_model(self, effect: CallModel) -> Happened:
        call = self._call = model_call.new_call(self.run.id, self._state.loadout, self._wiring.clock)
        choices = model_call.choices(effect, self._state.loadout, self._scene, self._request)
        show = self._journal.show if self._request.stream_tokens else _unseen
        models, clock = self._wiring.models, self._wiring.clock
        happened = await model_call.perform(call, models, choices, self.run.org_id, clock, show)
        self._call = None
        self._note_call(call, happened)
        return happened

    def _note_call(self, call: ModelCall, happened: Happened) -> None:
        """Remember the step, so that the checkpoint of what happened writes it too."""
        if self._ttft_ns is None and call.first_token_ns is not None:
            self._ttft_ns = call.first_token_ns - self._began_ns
        step, self._traced = self._step_row(call), call
        match happened:
            case ModelReplied(reply=reply):
                self._context_tokens = reply.usage.total_tokens
                self._step = replace(step, status="success")
            case ModelFailed(kind=kind, message=message, detail=detail):
                error = {"error_type": kind, "message": message, "detail": detail}
                self._step = replace(step, status="failed", error=error)
            case _:
                pass

    def _step_row(self, call: ModelCall) -> Step:
        return model_call.step_of(
            call,
            org_id=self.run.org_id,
            run_id=self.run.id,
            agent=self._scene.agent,
            handle=self._handle,
            now_ns=self._wiring.clock.monotonic_ns(),
        )

    async def _run_tool(self, call: Call, filled: Mapping[str, Any]) -> Happened:
        """Whoever slept past the lease asks whether the run is still ours; from there to the tool there is no await."""
        wiring = self._wiring
        while not self.tenure.held:
            await self._renew()
        result, edits = await tool_call.perform(
            call, self._scene, wiring.toolbox, wiring.tool_limits, filled, self.run.turn_id, self._tell
        )
        self._edits[call.call.id] = edits
        return ToolSettled(call.call.id, result)

    def _tell(self, text: str) -> None:
        """What a call waits for, as a ping that says so: every client knows pings, and who likes can show the words."""
        clock = self._wiring.clock
        self._journal.show({**stream.ping_wire(self.run.id, clock.now(), new_id("ping")), "detail": text})

    async def _compact(self, effect: Compact) -> Happened:
        job = compaction.Job(
            scene=self._scene,
            loadout=self._state.loadout,
            models=self._wiring.models,
            handle=self._handle,
            effect=effect,
            settings=CompactionSettings.of(self._scene.agent.compaction_settings, self._request.compaction),
            context_tokens=self._state.context_tokens,
            count=self._wiring.count,
        )
        outcome = await compaction.perform(job)
        if isinstance(outcome, CompactionFailed):
            log.warning("run %s: %s", self.run.id, outcome.message)
            return outcome
        self._shortened = outcome
        return Compacted(outcome.context_tokens, outcome.usage)

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    async def _write(self, decision: Decision, happened: Happened) -> None:
        """One decision, one transaction: messages, ledger, step, events, and the run's rest if it comes to that."""
        first_event, records = await self._journal.settle()
        edits = self._edits.pop(happened.call_id, ()) if isinstance(happened, ToolSettled) else ()
        if any(isinstance(draft.body, ToolReturnsBody) for draft in decision.messages):
            self._note_tool_time(cut_off=isinstance(happened, CancelAsked))
        drawn = draw_up(
            Drawn(
                decision=decision,
                before=self._state,
                scene=self._scene,
                run=self.run,
                request=self._request,
                now=self._wiring.clock.now(),
                first_event=first_event,
                records=records,
                step=self._step,
                step_is_new=self._last_step is None or self._step is None or self._step.id != self._last_step.id,
                context_tokens=self._context_tokens,
                duration_ns=self._wiring.clock.monotonic_ns() - self._began_ns,
                ttft_ns=self._ttft_ns,
                edits=edits,
                shortened=self._shortened,
                streamed=self._streamed(happened),
                decided_by=self.run.created_by,
                first=self._first,
                takes_input=isinstance(happened, UserSpoke | DecisionsGiven),
            )
        )
        lease = self.tenure.renewed()
        try:
            if await self._wiring.store.checkpoint(lease, drawn):
                self.tenure.cancel_asked()
        except StaleMemory:
            self._journal.take_back(records)
            raise
        self.tenure.kept(lease)
        self._scene.edit(edits)
        self._scene.advance(drawn)
        self._last_step = drawn.step or self._last_step
        self._first = False
        self._state, self._step, self._shortened = decision.state, None, None
        self._journal.written(list(drawn.events), done=drawn.rest is not None)
        self._trace(drawn.step)

    def _trace(self, step: Step | None) -> None:
        call, self._traced = self._traced, None
        if call is not None and step is not None and self._wiring.traces is not None:
            self._wiring.traces.note(call, step, self._scene.agent)

    def _streamed(self, happened: Happened) -> frozenset[str]:
        """The messages whose pieces subscribers have already seen."""
        if self._request.stream_tokens and isinstance(happened, ModelReplied):
            return frozenset({happened.message_id, happened.request_id})
        return frozenset()

    def _note_tool_time(self, *, cut_off: bool) -> None:
        """The step's tools are done, or cut off: its row gets their time with the message of their results."""
        if self._last_step is not None and self._tools_began_ns is not None:
            tool_ns = self._wiring.clock.monotonic_ns() - self._tools_began_ns
            spent = (self._last_step.llm_ns or 0) + tool_ns
            status = "cancelled" if cut_off else self._last_step.status
            self._step = replace(self._last_step, status=status, tool_ns=tool_ns, step_ns=spent)
        self._tools_began_ns = None


def _unseen(wire: Wire) -> None:
    """Pieces of a reply that nobody watches token by token are not records."""
