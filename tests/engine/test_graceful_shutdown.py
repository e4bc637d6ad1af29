"""Graceful shutdown: a process releases all its runs at once and for good, also those with pending writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.house import House, opened
from holdfast.bus.postgres import PostgresBus
from holdfast.core.records import Run
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import RunFilter
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.runs import run_store
from holdfast.testing.script import Hang, Say

SOON = 3.0  # far less than the lease, so nothing is found because a lease has run out
Patch = pytest.MonkeyPatch


@asynccontextmanager
async def process(url: str, owner: str, **options: Any) -> AsyncIterator[House]:
    async with opened(url, owner=owner, alone=False, lease_seconds=60, bus=PostgresBus(url), **options) as house:
        yield house


async def taken_over(url: str, run: Run) -> bool:
    """Another process finishes the run soon."""
    async with process(url, "successor", sweep=False) as successor:
        successor.model.script(Say("taken over"))
        await successor.engine.open(alone=False)
        async with asyncio.timeout(SOON):
            await successor.records(run.id)
        return (await successor.history.run(DEFAULT_ACTOR, run.id)).status == "completed"


async def test_a_process_that_leaves_hands_its_runs_over_at_once(shared_url: str) -> None:
    async with process(shared_url, "leaving") as leaving, process(shared_url, "staying") as staying:
        conversation = await leaving.agent()
        leaving.model.script(Hang())
        run = await leaving.start(conversation)
        await leaving.model_called(1)
        staying.model.script(Say("taken over"))
        await leaving.engine.close(grace_seconds=0)
        async with asyncio.timeout(SOON):
            await staying.records(run.id)
        assert (await staying.history.run(DEFAULT_ACTOR, run.id)).status == "completed"


async def test_a_page_that_comes_late_does_not_hold_a_run_that_was_handed_over(
    shared_url: str, monkeypatch: Patch
) -> None:
    async with process(shared_url, "leaving") as leaving:
        under_way, go_on, over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        append = leaving.deps.store.append_events

        async def late(*args: Any) -> Any:
            under_way.set()
            await go_on.wait()
            try:
                return await append(*args)
            finally:
                over.set()

        monkeypatch.setattr(leaving.deps.store, "append_events", late)
        leaving.model.script(Say("half of"), Hang())
        run = await leaving.start(await leaving.agent(), stream_tokens=True)
        await under_way.wait()
        await leaving.engine.close(grace_seconds=0)
        go_on.set()
        await over.wait()
        assert await taken_over(shared_url, run)


async def test_what_a_look_under_way_takes_is_handed_over_too(shared_url: str, monkeypatch: Patch) -> None:
    async with process(shared_url, "leaving") as leaving, process(shared_url, "api", most_runs=0) as api:
        taken, go_on = asyncio.Event(), asyncio.Event()
        claim_next = leaving.deps.store.claim_next

        async def slow(*args: Any) -> Any:
            leases = await claim_next(*args)
            if leases:
                taken.set()
                await go_on.wait()
            return leases

        monkeypatch.setattr(leaving.deps.store, "claim_next", slow)
        leaving.model.script(Hang())
        run = await api.start(await api.agent())
        await taken.wait()
        closing = asyncio.create_task(leaving.engine.close(grace_seconds=0))
        await asyncio.sleep(0)  # it has begun
        go_on.set()
        await closing
        assert await taken_over(shared_url, run)


async def test_what_is_being_accepted_while_a_process_leaves_is_handed_over_too(
    shared_url: str, monkeypatch: Patch
) -> None:
    """A server cuts off requests that take too long; what they were writing is written all the same."""
    async with process(shared_url, "leaving") as leaving:
        conversation = await leaving.agent()
        begun, go_on = asyncio.Event(), threading.Event()
        begin = run_store._begin

        def slow(*args: Any) -> None:
            loop.call_soon_threadsafe(begun.set)
            go_on.wait()
            begin(*args)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(run_store, "_begin", slow)
        accepting = asyncio.create_task(leaving.start(conversation))
        await begun.wait()
        accepting.cancel()
        closing = asyncio.create_task(leaving.engine.close(grace_seconds=0))
        await asyncio.wait({closing}, timeout=0.05)
        go_on.set()
        await closing
        monkeypatch.undo()
        (run,) = await leaving.history.runs(DEFAULT_ACTOR, RunFilter(), Page(limit=10))
        assert run.status == "running"
        assert await taken_over(shared_url, run)
