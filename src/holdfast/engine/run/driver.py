"""Drives one run: performs the effects of each decision and feeds back what happened, until the run comes to rest.

    decide -> checkpoint -> perform -> decide -> …

One driver works on one run and holds its lease. Every decision is written in one checkpoint before its effects begin,
so a tool call is in the ledger as started before the tool starts. A cancel or a lost lease interrupts all effects:
tools are killed and the model's connection is closed before the driver goes on.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial

from holdfast.core.budget import seconds_spent
from holdfast.core.errors import AskedWrongly, LostLease
from holdfast.core.lifecycle import ACTIVE
from holdfast.core.records import Run
from holdfast.core.state import BudgetSpent, CallModel, CancelAsked, Crashed, Decision, Happened, ToolSettled
from holdfast.engine.run import tool_call
from holdfast.engine.run.build_change import EventPage, Outcome
from holdfast.engine.run.effects import Effects
from holdfast.engine.run.held_lease import HeldLease
from holdfast.engine.run.session import Session
from holdfast.engine.stream.journal import Journal
from holdfast.ports.stores.run_store import Change, StaleMemory, StaleSnapshot

log = logging.getLogger("holdfast.engine")


class Driver:
    def __init__(self, session: Session, run: Run, held_lease: HeldLease, last_event: int) -> None:
        self._session = session
        self._deps = deps = session.deps
        self.run = run
        self.held_lease = held_lease
        self._journal = Journal(deps.pages, deps.feed, held_lease, last_event)
        self._effects = Effects(session, run, held_lease, self._journal)
        self._is_first = False  # whether the next checkpoint is the first one of this run
        self._has_ttft = run.ttft_ns is not None
        self._context_tokens: int | None = None  # as the model counted them last
        self._agent_revision = session.memory_revision
        self._time_limit: asyncio.Task[None] | None = None
        self._rests = False

    # ---- the loop -----------------------------------------------------------------------------------------------

    async def drive(self, decision: Decision) -> None:
        """Continue from a decision that is already written, until the run rests or another process has claimed it."""
        await self._to_rest(decision, None)

    async def begin(self, found: Happened) -> None:
        """Begin a run that another process accepted or left: `found` is its input, or `Recovered`."""
        self._is_first = True
        await self._to_rest(None, found)

    async def _to_rest(self, decision: Decision | None, found: Happened | None) -> None:
        deps = self._deps
        self._time_limit = self._start_time_limit()
        try:
            if decision is None and found is not None:
                decision = await self._first_decision(found)
            while decision is not None and decision.stop is None:
                if not self.held_lease.interrupted.is_set():
                    await self._see_new_memory(decision)
                    self._effects.begin(decision.effects, self._session.state)
                decision = await self._decide_and_write(await self._next())
        except LostLease:
            log.info("run %s was taken over by another process", self.run.id)
        finally:
            if self._time_limit is not None:
                self._time_limit.cancel()
            await self._effects.cancel()
            self._journal.close()
            if not self._rests:
                self._session.keep(rests=False)
            deps.feed.close(self.run.id)
            await self._effects.closed()

    async def _see_new_memory(self, decision: Decision) -> None:
        """Before the model is called, read the memory blocks again if somebody has changed the agent since they were
        read. The next checkpoint stores the system message that is made from them."""
        if self._agent_revision == self._session.memory_revision:
            return
        if any(isinstance(effect, CallModel) for effect in decision.effects):
            await self._session.refresh_memory()
            self._agent_revision = self._session.memory_revision
            self._is_first = True

    async def _first_decision(self, found: Happened) -> Decision:
        """Decide on what was found. Input that has become invalid fails the run and leaves the open calls of other runs
        alone."""
        try:
            return await self._decide_and_write(Outcome(found))
        except AskedWrongly as error:
            self._session.without_calls()
            return await self._decide_and_write(Outcome(Crashed(str(error))))

    async def _decide_and_write(self, outcome: Outcome) -> Decision:
        decision = self._session.decide(outcome.happened)
        try:
            await self._write(decision, outcome)
        except StaleMemory as stale:
            return await self._decide_and_write(await self._without_edits(outcome, stale))
        return decision

    async def _without_edits(self, outcome: Outcome, stale: StaleMemory) -> Outcome:
        """Drop the memory edits of a tool, because another writer changed the block meanwhile. That change stays, and
        the model is told."""
        happened = outcome.happened
        if not isinstance(happened, ToolSettled):
            raise stale
        await self._session.refresh_memory()
        self._is_first = True  # the next change recompiles the system message from the current blocks
        result = tool_call.with_stale_memory_note(happened.result, self._session.loaded, stale.label)
        return replace(outcome, happened=replace(happened, result=result), edits=())

    async def _next(self) -> Outcome:
        """Wait until an effect finishes, the run is interrupted, or its time is over. Finished effects come first."""
        interrupted = asyncio.create_task(self.held_lease.interrupted.wait())
        ends = {interrupted} if self._time_limit is None else {interrupted, self._time_limit}
        try:
            done, _ = await asyncio.wait({*ends, *self._effects.under_way}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            interrupted.cancel()
        if self.held_lease.error is not None:
            raise self.held_lease.error
        finished = next((task for task in self._effects.under_way if task in done), None)
        if finished is not None:
            return self._effects.outcome(finished)
        await self._effects.cancel()
        return await self._cancel_asked() if interrupted in done else self._out_of_time()

    def _start_time_limit(self) -> asyncio.Task[None] | None:
        limit = self._session.state.config.limits.budget.max_seconds
        if limit is None:
            return None
        passed = (self._deps.clock.monotonic_ns() - self._effects.began_ns) / 1e9
        return asyncio.create_task(self._deps.clock.sleep(max(0.001, limit - passed)))

    def _out_of_time(self) -> Outcome:
        spent = seconds_spent(self._session.state.config.limits.budget.max_seconds or 0)
        return self._effects.interrupted(BudgetSpent(spent), spent.stop)

    async def _cancel_asked(self) -> Outcome:
        """The cancel request from the run's row; it is read here if it came through another process."""
        self.run = asked = self.held_lease.asked or await self._deps.store.run(self.run.id)
        if asked.status not in ACTIVE:
            raise LostLease(f"Run {asked.id} was brought to rest by another process.")
        return self._effects.interrupted(CancelAsked(rollback=asked.cancel_rollback), "cancelled")

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    async def _write(self, decision: Decision, outcome: Outcome) -> None:
        """Write one decision in one transaction: messages, ledger, step, events, and how the run ends, if it does."""
        if self._session.state.calls and not decision.state.calls:
            outcome = self._effects.with_tools_ended(outcome)
        change = await self._commit(decision, self._with_times(outcome))
        self._is_first = False
        self._rests = change.rest is not None
        if self._rests:
            self._session.keep(rests=True)  # before a client hears of it and sends the next message
        self._journal.written(list(change.events), done=change.rest is not None)
        self._effects.stored(outcome, change.step)

    def _with_times(self, outcome: Outcome) -> Outcome:
        """Add the time to the first token, once in a run, and the last token count of the model."""
        if outcome.context_tokens is not None:
            self._context_tokens = outcome.context_tokens
        ttft_ns = None if self._has_ttft else outcome.ttft_ns
        self._has_ttft = self._has_ttft or ttft_ns is not None
        return replace(outcome, ttft_ns=ttft_ns, context_tokens=self._context_tokens)

    async def _commit(self, decision: Decision, outcome: Outcome) -> Change:
        """Write the change and return it. If messages were added to the history meanwhile, it is built again and
        written."""
        while True:
            first_event, records = await self._journal.settle()
            lease = self.held_lease.renewed()
            try:
                change, written = await self._session.commit(
                    self.run,
                    decision,
                    outcome,
                    write=partial(self._deps.store.checkpoint, lease),
                    page=EventPage(first_event, tuple(records)),
                    first=self._is_first,
                    decided_by=self.run.created_by,
                    duration_ns=self._deps.clock.monotonic_ns() - self._effects.began_ns,
                )
            except StaleMemory:
                self._journal.take_back(records)
                raise
            except StaleSnapshot:
                self._journal.take_back(records)
                if not await self._session.catch_up():
                    raise
            else:
                if written.is_cancel_asked:
                    self.held_lease.cancel_asked()
                self.held_lease.kept(lease)
                self._agent_revision = written.revision
                return change
