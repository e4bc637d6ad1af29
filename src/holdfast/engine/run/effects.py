"""Performs the effects of a decision: the model call, the tools, the compaction. Each is a task.

An effect returns one `Outcome`, which holds everything that the next checkpoint stores about it. The driver takes
outcomes in the order in which the tasks finish.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import asdict, replace
from typing import Any

from holdfast.core.budget import Price
from holdfast.core.compaction import CompactionSettings
from holdfast.core.conversation.wire_messages import ping_wire
from holdfast.core.errors import LostLease
from holdfast.core.lifecycle import StopReason
from holdfast.core.records import Run, Step
from holdfast.core.state import (
    BudgetSpent,
    Call,
    CallModel,
    CancelAsked,
    Compact,
    Compacted,
    CompactionFailed,
    Crashed,
    Effect,
    ModelFailed,
    RunTools,
    State,
    ToolSettled,
)
from holdfast.engine.run import compaction, model_call, tool_call
from holdfast.engine.run.build_change import Outcome
from holdfast.engine.run.held_lease import HeldLease, began_ns, renew
from holdfast.engine.run.model_call import ModelCall
from holdfast.engine.run.session import Session
from holdfast.engine.stream.journal import Journal
from holdfast.ports.ids import new_id

log = logging.getLogger("holdfast.engine")


class Effects:
    """The running effects of one run, and the step that they belong to."""

    def __init__(self, session: Session, run: Run, held_lease: HeldLease, journal: Journal) -> None:
        self._deps = session.deps
        self._run = run
        self._request = session.request
        self._held_lease = held_lease
        self._loaded = session.loaded
        self._journal = journal
        self._handle = model_call.handle_of(self._loaded.agent, self._loaded.conversation, self._request)
        self._call: ModelCall | None = None
        self._tools_began_ns: int | None = None
        self._last_step = self._loaded.step
        self.began_ns = began_ns(run, self._deps.clock)
        self.under_way: set[asyncio.Task[Outcome]] = set()
        self._running_tools: set[asyncio.Task[Outcome]] = set()  # those of `under_way`
        self._closing: set[asyncio.Task[Outcome]] = set()  # cancelled calls of models whose connection is being closed

    # ---- starting and cancelling ------------------------------------------------------------------------------------

    def begin(self, effects: tuple[Effect, ...], state: State) -> None:
        for effect in effects:
            match effect:
                case CallModel():
                    self._start(self._call_model(effect, state))
                case RunTools():
                    self._tools_began_ns = self._tools_began_ns or self._deps.clock.monotonic_ns()
                    for call in effect.calls:
                        self._running_tools.add(self._start(self._run_tool(call)))
                case Compact():
                    self._start(self._compact(effect, state))

    def _start(self, work: Coroutine[Any, Any, Outcome]) -> asyncio.Task[Outcome]:
        task = asyncio.create_task(work)
        self.under_way.add(task)
        return task

    def outcome(self, task: asyncio.Task[Outcome]) -> Outcome:
        """The outcome of a task that has finished."""
        self.under_way.discard(task)
        self._running_tools.discard(task)
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, LostLease):
            raise error
        log.error("run %s: unexpected %r", self._run.id, error, exc_info=error)
        return Outcome(Crashed(f"{type(error).__name__}: {error}"))

    async def cancel(self) -> None:
        """Cancel everything. When this returns, tools are dead. Connections to models are still being closed, which no
        checkpoint has to wait for; nothing more is read from them."""
        for task in self.under_way:
            task.cancel()
        self._closing |= self.under_way - self._running_tools
        if self._running_tools:
            await asyncio.wait(self._running_tools)
        self.under_way.clear()
        self._running_tools.clear()

    async def closed(self) -> None:
        """Wait until the connections of cancelled model calls are closed."""
        if self._closing:
            await asyncio.wait(self._closing)

    def interrupted(self, happened: CancelAsked | BudgetSpent, stop: StopReason) -> Outcome:
        """The outcome of an interruption, with the part of an unfinished reply that subscribers have seen. The step of
        that reply ends here."""
        call, self._call = self._call, None
        if call is None or not call.attempts:
            return Outcome(happened)
        call.usage = model_call.used_so_far(call)
        last = call.attempts[-1]
        last.latency_ns = self._deps.clock.monotonic_ns() - last.began_ns
        step = replace(self._step_row(call), status="cancelled", stop_reason=stop)
        if call.call_type != "summarization":
            partial = call.unfolding.seen()
            happened = replace(happened, partial=partial, step_id=call.step_id, message_id=call.message_id)
        return self._with_step(Outcome(happened, call=call), step)

    # ---- the model --------------------------------------------------------------------------------------------------

    async def _call_model(self, effect: CallModel, state: State) -> Outcome:
        call = self._call = model_call.new_call(self._run.id, state, self._deps.clock)
        choices = model_call.choices(effect, state.config, self._loaded.with_current_memory(), self._request)
        show = self._journal.show if self._request.stream_tokens else model_call.unseen
        models, clock = self._deps.models, self._deps.clock
        happened = await model_call.perform(call, models, choices, self._run.org_id, clock, show)
        outcome = self._of_call(Outcome(happened), call)
        if call.first_token_ns is not None:
            outcome = replace(outcome, ttft_ns=call.first_token_ns - self.began_ns)
        if isinstance(happened, ModelFailed):
            return outcome
        happened = replace(happened, price=self._price(call))
        return replace(outcome, happened=happened, context_tokens=happened.reply.usage.total_tokens)

    def _of_call(self, outcome: Outcome, call: ModelCall) -> Outcome:
        """The outcome with the step of a finished model call."""
        self._call = None
        if not call.attempts:
            return outcome
        step = self._step_row(call)
        match call.attempts[-1].outcome:
            case ModelFailed(kind=kind, message=message, detail=detail):
                step = replace(step, status="failed", error={"error_type": kind, "message": message, "detail": detail})
            case _:
                step = replace(step, status="success")
        return self._with_step(replace(outcome, call=call), step)

    def _with_step(self, outcome: Outcome, step: Step) -> Outcome:
        is_new = self._last_step is None or step.id != self._last_step.id
        return replace(outcome, step=step, step_is_new=is_new)

    def _price(self, call: ModelCall) -> Price | None:
        """The price of the model that replied or, if none did, of the one that was called last."""
        return self._deps.price_of(call.attempts[-1].request.model) if call.attempts else None

    def _step_row(self, call: ModelCall) -> Step:
        return model_call.step_of(
            call,
            org_id=self._run.org_id,
            run_id=self._run.id,
            agent=self._loaded.agent,
            handle=self._handle,
            now_ns=self._deps.clock.monotonic_ns(),
        )

    # ---- tools ------------------------------------------------------------------------------------------------------

    async def _run_tool(self, call: Call) -> Outcome:
        """Run one tool call. A process that was suspended past its lease first checks whether it still holds the run.
        Between that check and the start of the tool there is no await."""
        deps = self._deps
        while not self._held_lease.held:
            await renew([self._held_lease], deps.store)
            if self._held_lease.error is not None:
                raise self._held_lease.error
        result, edits = await tool_call.perform(
            call, self._loaded, deps.toolbox, deps.tool_limits, self._run.turn_id, self._report_progress
        )
        return Outcome(ToolSettled(call.call.id, result), edits=edits)

    def _report_progress(self, text: str) -> None:
        """Send what a call waits for as a ping with a text: every client accepts pings, and some show the text."""
        clock = self._deps.clock
        self._journal.show({**ping_wire(new_id("ping"), self._run.id, clock.now()), "detail": text})

    # ---- compaction ------------------------------------------------------------------------------------------------

    async def _compact(self, effect: Compact, state: State) -> Outcome:
        settings = CompactionSettings.of(self._loaded.agent.compaction_settings, self._request.compaction)
        call = model_call.new_call(self._run.id, state, self._deps.clock, asdict(settings))
        self._call = call
        job = compaction.Job(
            deps=self._deps,
            loaded=self._loaded,
            config=state.config,
            request=self._request,
            effect=effect,
            settings=settings,
            context_tokens=state.context_tokens,
            call=call,
        )
        result = await compaction.perform(job)
        if isinstance(result, CompactionFailed):
            log.warning("run %s: %s", self._run.id, result.message)
            return self._of_call(Outcome(replace(result, price=self._price(call))), call)
        compacted = Compacted(result.context_tokens, call.usage, self._price(call))
        return self._of_call(Outcome(compacted, shortened=result), call)

    # ---- what a checkpoint stores of the step -----------------------------------------------------------------------

    def with_tools_ended(self, outcome: Outcome) -> Outcome:
        """The outcome that ends the step's tool calls, with the step's row: how long the tools took, and whether they
        were cancelled. Some calls may never have started."""
        step, began_ns, self._tools_began_ns = self._last_step, self._tools_began_ns, None
        if step is None:
            return outcome
        is_cancelled = isinstance(outcome.happened, CancelAsked)
        if began_ns is not None:
            tool_ns = self._deps.clock.monotonic_ns() - began_ns
            step = replace(step, tool_ns=tool_ns, step_ns=(step.llm_ns or 0) + tool_ns)
        if is_cancelled:
            step = replace(step, status="cancelled")
        return outcome if began_ns is None and not is_cancelled else replace(outcome, step=step, step_is_new=False)

    def stored(self, outcome: Outcome, step: Step | None) -> None:
        """Called when a checkpoint has stored the outcome: the model call of a stored step gets its trace."""
        if outcome.call is not None and step is not None and self._deps.traces is not None:
            self._deps.traces.note(outcome.call, step, self._loaded.agent)
        if step is not None and step.call_type == "agent_step":
            self._last_step = step
