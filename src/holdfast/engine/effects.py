"""Effects under way: the model call, the tools, the compaction that a decision wished for.

Each is a task; whichever finishes first happens first. What the next checkpoint must know of them beside what happened
(the step's row and times, memory edits, the shortened context) is kept here until it is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, replace
from typing import Any

from holdfast.core.budget import Price
from holdfast.core.compaction import CompactionSettings
from holdfast.core.errors import LostLease
from holdfast.core.lifecycle import StopReason
from holdfast.core.messages import Part
from holdfast.core.outward import ping_wire
from holdfast.core.records import Run, Step
from holdfast.core.request import RunRequest
from holdfast.core.state import (
    Call,
    CallModel,
    Compact,
    Compacted,
    CompactionFailed,
    Crashed,
    Effect,
    Happened,
    ModelFailed,
    RunTools,
    State,
    ToolSettled,
)
from holdfast.engine import compaction, model_call, tool_call
from holdfast.engine.journal import Journal
from holdfast.engine.model_call import ModelCall
from holdfast.engine.scene import Scene
from holdfast.engine.tenure import Tenure, began_ns, renew
from holdfast.engine.wiring import Wiring
from holdfast.ports.ids import new_id
from holdfast.ports.toolbox import MemoryEdit

log = logging.getLogger("holdfast.engine")


class Effects:
    def __init__(
        self, wiring: Wiring, run: Run, request: RunRequest, tenure: Tenure, scene: Scene, journal: Journal
    ) -> None:
        self._wiring = wiring
        self._run = run
        self._request = request
        self._tenure = tenure
        self._scene = scene
        self._journal = journal
        self._handle = model_call.handle_of(scene.agent, scene.conversation, request)
        self._call: ModelCall | None = None
        self._traced: ModelCall | None = None  # to be traced once its step is written
        self._edits: dict[str, tuple[MemoryEdit, ...]] = {}  # by call, until its result is written
        self._tools_began_ns: int | None = None
        self._last_step = scene.step
        self.began_ns = began_ns(run, wiring.clock)
        self.under_way: set[asyncio.Task[Happened]] = set()
        self.step: Step | None = None  # as the next checkpoint writes it
        self.context_tokens: int | None = None
        self.ttft_ns = run.ttft_ns
        self.shortened: compaction.Shortened | None = None

    # ---- beginning and ending ---------------------------------------------------------------------------------------

    def begin(self, effects: tuple[Effect, ...], state: State) -> None:
        for effect in effects:
            match effect:
                case CallModel():
                    self._start(self._call_model(effect, state))
                case RunTools():
                    self._tools_began_ns = self._tools_began_ns or self._wiring.clock.monotonic_ns()
                    for call in effect.calls:
                        self._start(self._run_tool(call, effect.prefilled.get(call.call.id, {})))
                case Compact():
                    self._start(self._compact(effect, state))

    def _start(self, work: Coroutine[Any, Any, Happened]) -> None:
        self.under_way.add(asyncio.create_task(work))

    def outcome(self, task: asyncio.Task[Happened]) -> Happened:
        """What came of one that has finished."""
        self.under_way.discard(task)
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, LostLease):
            raise error
        log.error("run %s: unexpected %r", self._run.id, error, exc_info=error)
        return Crashed(f"{type(error).__name__}: {error}")

    async def stop(self) -> None:
        """Nothing of ours runs on: tools are dead and connections closed when this returns."""
        for task in self.under_way:
            task.cancel()
        if self.under_way:
            await asyncio.wait(self.under_way)
        self.under_way.clear()

    def cut_off(self, stop: StopReason) -> tuple[tuple[Part, ...], str, str] | None:
        """What was seen of a reply that is still coming, with its step and its message; its step ends here."""
        call, self._call = self._call, None
        if call is None or not call.attempts:
            return None
        call.usage = model_call.used_so_far(call)
        self.step, self._traced = replace(self._step_row(call), status="cancelled", stop_reason=stop), call
        if call.call_type == "summarization":
            return None
        return call.unfolding.seen(), call.step_id, call.message_id

    # ---- the model --------------------------------------------------------------------------------------------------

    async def _call_model(self, effect: CallModel, state: State) -> Happened:
        call = self._call = model_call.new_call(self._run.id, state.loadout, self._wiring.clock)
        choices = model_call.choices(effect, state.loadout, self._scene, self._request)
        show = self._journal.show if self._request.stream_tokens else model_call.unseen
        models, clock = self._wiring.models, self._wiring.clock
        happened = await model_call.perform(call, models, choices, self._run.org_id, clock, show)
        if self.ttft_ns is None and call.first_token_ns is not None:
            self.ttft_ns = call.first_token_ns - self.began_ns
        self._note_call(call)
        if isinstance(happened, ModelFailed):
            return happened
        self.context_tokens = happened.reply.usage.total_tokens
        return replace(happened, price=self._price(call))

    def _note_call(self, call: ModelCall) -> None:
        """The call is over. Remember its step, so that the checkpoint of what happened writes it too."""
        self._call = None
        if not call.attempts:
            return
        step, self._traced = self._step_row(call), call
        match call.attempts[-1].outcome:
            case ModelFailed(kind=kind, message=message, detail=detail):
                error = {"error_type": kind, "message": message, "detail": detail}
                self.step = replace(step, status="failed", error=error)
            case _:
                self.step = replace(step, status="success")

    def _price(self, call: ModelCall) -> Price | None:
        """Of the model that answered, or was asked last."""
        return self._wiring.price_of(call.attempts[-1].request.model) if call.attempts else None

    def _step_row(self, call: ModelCall) -> Step:
        return model_call.step_of(
            call,
            org_id=self._run.org_id,
            run_id=self._run.id,
            agent=self._scene.agent,
            handle=self._handle,
            now_ns=self._wiring.clock.monotonic_ns(),
        )

    # ---- tools ------------------------------------------------------------------------------------------------------

    async def _run_tool(self, call: Call, filled: Mapping[str, Any]) -> Happened:
        """Whoever slept past the lease asks whether the run is still ours; from there to the tool there is no await."""
        wiring = self._wiring
        while not self._tenure.held:
            await renew(self._tenure, wiring.store)
        result, edits = await tool_call.perform(
            call, self._scene, wiring.toolbox, wiring.tool_limits, filled, self._run.turn_id, self._tell
        )
        self._edits[call.call.id] = edits
        return ToolSettled(call.call.id, result)

    def _tell(self, text: str) -> None:
        """What a call waits for, as a ping that says so: every client knows pings, and who likes can show the words."""
        clock = self._wiring.clock
        self._journal.show({**ping_wire(new_id("ping"), self._run.id, clock.now()), "detail": text})

    # ---- compaction ------------------------------------------------------------------------------------------------

    async def _compact(self, effect: Compact, state: State) -> Happened:
        settings = CompactionSettings.of(self._scene.agent.compaction_settings, self._request.compaction)
        call = model_call.new_call(self._run.id, state.loadout, self._wiring.clock, asdict(settings))
        self._call = call
        job = compaction.Job(
            wiring=self._wiring,
            scene=self._scene,
            loadout=state.loadout,
            request=self._request,
            effect=effect,
            settings=settings,
            context_tokens=state.context_tokens,
            call=call,
        )
        outcome = await compaction.perform(job)
        self._note_call(call)
        if isinstance(outcome, CompactionFailed):
            log.warning("run %s: %s", self._run.id, outcome.message)
            return replace(outcome, price=self._price(call))
        self.shortened = outcome
        return Compacted(outcome.context_tokens, call.usage, self._price(call))

    # ---- what a checkpoint writes of them ---------------------------------------------------------------------------

    @property
    def step_is_new(self) -> bool:
        return self._last_step is None or self.step is None or self.step.id != self._last_step.id

    def edits_of(self, happened: Happened) -> tuple[MemoryEdit, ...]:
        """The memory edits of a tool that has settled, given once."""
        return self._edits.pop(happened.call_id, ()) if isinstance(happened, ToolSettled) else ()

    def end_tools(self, *, cut_off: bool) -> None:
        """The step's calls are done, or cut off, some perhaps before they began: its row says so, with their time."""
        step, began_ns, self._tools_began_ns = self._last_step, self._tools_began_ns, None
        if step is not None and began_ns is not None:
            tool_ns = self._wiring.clock.monotonic_ns() - began_ns
            self.step = step = replace(step, tool_ns=tool_ns, step_ns=(step.llm_ns or 0) + tool_ns)
        if step is not None and cut_off:
            self.step = replace(step, status="cancelled")

    def written(self, step: Step | None) -> None:
        """A checkpoint has stored what was kept for it; a model call whose step is durable gets its trace."""
        call, self._traced = self._traced, None
        if call is not None and step is not None and self._wiring.traces is not None:
            self._wiring.traces.note(call, step, self._scene.agent)
        if step is not None and step.call_type == "agent_step":
            self._last_step = step
        self.step = self.shortened = None
