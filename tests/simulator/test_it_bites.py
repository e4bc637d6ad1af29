"""Tests that the simulator finds bugs: each test breaks one rule on purpose, and some history must fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.core import loop, step_calls
from holdfast.core.approvals import approval_gate
from holdfast.core.conversation.messages import ToolReturnsBody
from holdfast.core.state import Call, Decision, RunTools
from holdfast.engine import engine
from holdfast.engine.run import accept as accepting
from holdfast.engine.run.build_change import Outcome
from holdfast.engine.run.driver import Driver
from holdfast.engine.run.effects import Effects
from holdfast.engine.run.held_lease import HeldLease
from holdfast.engine.stream.journal import Journal
from holdfast.ports.stores.run_store import Change, Lease, NewPage
from simulator.many import quietly
from simulator.play import play
from simulator.rows import RunRow
from simulator.store import MemoryStore

pytestmark = pytest.mark.timeout(900)

Patch = pytest.MonkeyPatch


def no_fence(patch: Patch) -> None:
    def anyone(self: MemoryStore, lease: Lease) -> RunRow:
        return self.runs[lease.run_id]

    patch.setattr(MemoryStore, "_fenced", anyone)


def effect_before_intent(patch: Patch) -> None:
    async def hasty(self: Driver, outcome: Outcome) -> Decision:
        decision = self._session.decide(outcome.happened)
        tools = tuple(effect for effect in decision.effects if isinstance(effect, RunTools))
        self._effects.begin(tools, self._session.state)
        await self._write(decision, outcome)
        return replace(decision, effects=tuple(effect for effect in decision.effects if effect not in tools))

    patch.setattr(Driver, "_decide_and_write", hasty)


def no_return_on_cancel(patch: Patch) -> None:
    closed = loop._closed

    def without_returns(*args: Any, **options: Any) -> Decision:
        decision = closed(*args, **options)
        kept = tuple(draft for draft in decision.messages if not isinstance(draft.body, ToolReturnsBody))
        return replace(decision, messages=kept)

    patch.setattr(loop, "_closed", without_returns)


def zombies_start_tools(patch: Patch) -> None:
    patch.setattr(HeldLease, "held", True)


def lost_calls_are_run_again(patch: Patch) -> None:
    def again(config: object, call: Call, request_id: str) -> Call:
        return replace(call, status="allowed") if call.status == "started" else call

    patch.setattr(step_calls, "recover_call", again)


def numbers_are_used_twice(patch: Patch) -> None:
    def forgetful(self: Journal, records: list[str], *, done: bool = False) -> None:
        self._feed.publish(self._held_lease.run_id, records, done=done)

    patch.setattr(Journal, "written", forgetful)


def shown_before_stored(patch: Patch) -> None:
    take_page, page_stored = Journal.take_page, Journal.page_stored

    def early(self: Journal) -> NewPage | None:
        if (page := take_page(self)) is not None:
            self._feed.publish(self._held_lease.run_id, page.records)
        return page

    def later(self: Journal, error: Exception | None) -> None:
        self._page = []
        page_stored(self, error)

    patch.setattr(Journal, "take_page", early)
    patch.setattr(Journal, "page_stored", later)


def pages_are_forgotten_at_a_takeover(patch: Patch) -> None:
    """The new owner numbers its events after the last checkpoint, not after the last page."""
    patch.setattr(MemoryStore, "last_event", lambda self, run_id: self.runs[run_id].run.last_event)


def requests_have_no_names(patch: Patch) -> None:
    async def always(find: object, accept: Callable[[], Any]) -> Any:
        return await accept()

    patch.setattr(engine, "once", always)
    begin = MemoryStore.begin

    def nameless(self: MemoryStore, run: Any, lease: Any, change: Any, now: Any) -> None:
        begin(self, replace(run, request={**run.request, "keys": []}), lease, change, now)

    patch.setattr(MemoryStore, "begin", nameless)


def two_at_a_time(patch: Patch) -> None:
    patch.setattr(MemoryStore, "_refuse_if_busy", staticmethod(lambda line: None))


def last_in_first_out(patch: Patch) -> None:
    real = MemoryStore._takeable

    def newest(self: MemoryStore, now: Any) -> list[Any]:
        found = real(self, now)
        queued = [row.run for row in self.runs.values() if row.run.queued and row.run.status == "created"]
        return [queued[-1] if run.queued else run for run in found]

    patch.setattr(MemoryStore, "_takeable", newest)


def tools_outlive_a_cancel(patch: Patch) -> None:
    async def leave_them(self: Effects) -> None:
        self.under_way.clear()

    patch.setattr(Effects, "cancel", leave_them)


def what_was_sent_along_is_forgotten(patch: Patch) -> None:
    real = MemoryStore.snapshot
    patch.setattr(MemoryStore, "snapshot", lambda self, *args: replace(real(self, *args), unread=()))


def accepted_before_it_is_written(patch: Patch) -> None:
    async def hopeful(deps: Any, actor: Any, conversation_id: str, request: Any) -> Any:
        snapshot = await deps.conversations.load(deps.store, conversation_id)
        run = replace(accepting.new_run(deps, actor, snapshot, request), status="created", queued=True)
        run = replace(run, turn_id=run.id)
        change = Change(conversation_id, 0, 0, events=(accepting.opening(run),))
        asyncio.get_running_loop().create_task(deps.store.begin(run, None, change))
        return run

    patch.setattr(engine, "enqueue", hopeful)


def nobody_takes_over(patch: Patch) -> None:
    patch.setattr(MemoryStore, "_takeable", lambda self, now: [])


def approvals_are_a_formality(patch: Patch) -> None:
    judge = approval_gate.judge_call

    def lenient(*args: Any, **options: Any) -> Any:
        verdict = judge(*args, **options)
        return verdict if verdict.client_side else replace(verdict, action="run")

    patch.setattr(step_calls, "judge_call", lenient)


# The promise that is broken, and how many histories are needed to see it (measured, then at least doubled).
WAYS: list[tuple[Callable[[Patch], None], str, range]] = [
    (no_fence, "promise 5", range(500)),
    (effect_before_intent, "promise 2", range(100)),
    (no_return_on_cancel, "promise 3", range(300)),
    (zombies_start_tools, "promise 2", range(11_000, 12_000)),
    (lost_calls_are_run_again, "promise 2", range(1000)),
    (numbers_are_used_twice, "promise 7", range(100)),
    (shown_before_stored, "promise 7", range(4000)),
    (pages_are_forgotten_at_a_takeover, "promise 7", range(1000)),
    (requests_have_no_names, "promise 4", range(1000)),
    (two_at_a_time, "promise 5", range(300)),
    (last_in_first_out, "promise 8", range(1000)),
    (tools_outlive_a_cancel, "promise 6", range(1000)),
    (what_was_sent_along_is_forgotten, "promise 4", range(2000)),
    (accepted_before_it_is_written, "promise 4", range(2000)),
    (nobody_takes_over, "promise 4", range(300)),
    (approvals_are_a_formality, "promise 9", range(100)),
]


@pytest.mark.parametrize(("break_it", "promise", "seeds"), WAYS, ids=[way[0].__name__ for way in WAYS])
def test_a_broken_rule_breaks_a_history(
    break_it: Callable[[Patch], None], promise: str, seeds: range, monkeypatch: Patch
) -> None:
    break_it(monkeypatch)
    with quietly():
        for seed in seeds:
            if (broken := play(seed).broken) is not None:
                assert promise in broken, f"seed {seed}: {broken}"
                return
    pytest.fail(f"{len(seeds)} histories did not notice")
