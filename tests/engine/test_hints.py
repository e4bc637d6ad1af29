"""Who is told of what: work reaches one worker, a run's log reaches its followers, and a lost hint costs only time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.house import House, opened
from holdfast.bus.postgres import PostgresBus
from holdfast.ports.bus import Hint
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.testing.script import Call, Hang, Say, Step
from holdfast.testing.waiting import async_until

SOON = 5.0  # far less than the lease, so only hints and what looks after them can be this fast


class LossyBus(PostgresBus):
    """Hints that `loses` names do not arrive."""

    loses: Callable[[Hint], bool] = staticmethod(lambda hint: False)

    def _notify_listeners(self, hint: Hint) -> None:
        if not self.loses(hint):
            super()._notify_listeners(hint)


@asynccontextmanager
async def process(url: str, owner: str, most_runs: int = 256) -> AsyncIterator[House]:
    """A lease of a minute: nothing is found by polling."""
    options: dict[str, Any] = {"alone": False, "most_runs": most_runs, "lease_seconds": 60}
    async with opened(url, owner=owner, bus=LossyBus(url), **options) as house:
        yield house


def replies(house: House, *steps: Step) -> None:
    """Each step is a reply of its own."""
    for step in steps:
        house.model.script(step)


async def known_to(api: House, *workers: str) -> None:
    """Wait until the process knows the free slots of these."""
    slots = api.engine.worker._dispatcher._free_slots
    await async_until(lambda: all(slots.get(worker) for worker in workers), "the slots of the workers")


def counted(house: House, monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """The calls of these methods of the store, as they come."""
    calls: list[str] = []

    def counting(name: str) -> Any:
        method = getattr(house.deps.store, name)

        async def count(*args: Any) -> Any:
            calls.append(name)
            return await method(*args)

        return count

    for name in names:
        monkeypatch.setattr(house.deps.store, name, counting(name))
    return calls


async def test_new_work_wakes_one_worker_and_nobody_reads_the_log(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        process(shared_url, "api", most_runs=0) as api,
        process(shared_url, "one") as one,
        process(shared_url, "two") as two,
        process(shared_url, "three") as three,
    ):
        workers = (one, two, three)
        await known_to(api, "one", "two", "three")
        conversation = await api.agent()
        claims = [counted(worker, monkeypatch, "claim_next", "claim_these") for worker in workers]
        reads = [counted(house, monkeypatch, "read_log") for house in (api, *workers)]
        for worker in workers:
            replies(worker, *[Say("done")] * 9)
        async with asyncio.timeout(SOON):
            for number in range(9):
                run = await api.finished(conversation, f"message {number}")
                assert run.stop_reason == "end_turn"
        assert sorted(name for calls in claims for name in calls) == ["claim_these"] * 9
        assert all(calls == [] for calls in reads)


async def test_pages_that_did_not_arrive_are_read(shared_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with process(shared_url, "api", most_runs=0) as api, process(shared_url, "worker") as worker:
        await known_to(api, "worker")
        lost: list[int] = []

        def second_page(hint: Hint) -> bool:
            is_it = hint.page is not None and len(lost) == 1 and hint.page.first > lost[0]
            if hint.page is not None and len(lost) < 2:
                lost.append(hint.page.first)
            return is_it

        monkeypatch.setattr(api.deps.bus, "loses", second_page)
        reads = counted(api, monkeypatch, "read_log")
        conversation = await api.agent("look")
        replies(worker, Call("look", id="c1"), Say("seen"))
        async with asyncio.timeout(SOON):
            run = await api.start(conversation, stream_tokens=True)
            records = await api.records(run.id)
        assert records[-2]["stop_reason"] == "end_turn"
        assert reads
        assert records == await worker.records(run.id)


async def test_the_end_of_a_run_is_noticed_when_its_hint_is_lost(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process(shared_url, "api", most_runs=0) as api, process(shared_url, "worker") as worker:
        await known_to(api, "worker")
        monkeypatch.setattr(api.deps.bus, "loses", lambda hint: hint.kind == "moved")
        worker.model.script(Say("done"))
        async with asyncio.timeout(SOON):
            assert (await api.finished(await api.agent())).stop_reason == "end_turn"


async def test_a_run_is_followed_from_a_process_that_did_not_accept_it(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        process(shared_url, "api", most_runs=0) as api,
        process(shared_url, "there", most_runs=0) as there,
        process(shared_url, "worker") as worker,
    ):
        await known_to(api, "worker")
        conversation = await api.agent("wait")
        wait = worker.toolbox.block("wait")
        replies(worker, Call("wait", id="c1"), Say("done"))
        run = await api.start(conversation)
        await wait.begun.wait()
        following = asyncio.create_task(there.records(run.id))
        driven = worker.deps.feed._recent[run.id]
        await async_until(lambda: driven.followers == {"api", "there"}, "the followers")
        ends = counted(there, monkeypatch, "log_ends")
        wait.may_end.set()
        async with asyncio.timeout(SOON):
            assert await following == await worker.records(run.id)
        assert len(ends) <= 1


async def test_a_process_that_does_not_follow_a_run_is_told_of_one_page_only(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process(shared_url, "api", most_runs=0) as api, process(shared_url, "worker") as worker:
        await known_to(api, "worker")
        conversation = await api.agent("wait")
        wait = worker.toolbox.block("wait")
        replies(worker, Call("wait", id="c1"), Say("done"))
        run = await api.start(conversation)
        await wait.begun.wait()
        await async_until(lambda: run.id not in api.deps.feed._recent, "the end of waiting for a subscriber")
        api.deps.bus.send(Hint("unfollow", run.id), to="worker")
        await async_until(lambda: not worker.deps.feed._recent[run.id].followers, "the worker to forget the follower")
        told: list[Hint] = []
        api.deps.bus.subscribe(told.append)
        wait.may_end.set()
        await worker.records(run.id)
        await async_until(lambda: told, "the free slot")
        assert {hint.kind for hint in told} == {"slots"}


async def test_a_worker_without_a_free_slot_declines_and_another_is_told(shared_url: str) -> None:
    async with (
        process(shared_url, "api", most_runs=0) as api,
        process(shared_url, "full", most_runs=1) as full,
        process(shared_url, "free") as free,
    ):
        full.model.script(Hang())
        await full.start(await full.agent())
        await full.model_called(1)
        await known_to(api, "free")
        api.engine.worker._dispatcher.received(Hint("slots", sender="full", free_slots=1_000))
        free.model.script(Say("done"))
        async with asyncio.timeout(SOON):
            assert (await api.finished(await api.agent())).stop_reason == "end_turn"
        assert len(free.model.requests) == 1


async def test_a_run_whose_worker_was_told_in_vain_is_taken_by_another(shared_url: str) -> None:
    """The hint was lost, or the process is gone."""
    async with process(shared_url, "api", most_runs=0) as api, process(shared_url, "worker") as worker:
        await known_to(api, "worker")
        slots = api.engine.worker._dispatcher._free_slots
        api.engine.worker._dispatcher.received(Hint("slots", sender="gone", free_slots=1_000))
        worker.model.script(Say("done"))
        conversation = await api.agent()
        async with asyncio.timeout(SOON):
            assert (await api.finished(conversation)).stop_reason == "end_turn"
        assert "gone" not in slots


async def test_while_all_are_full_nobody_is_told_and_the_run_is_taken_when_a_slot_is_free(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        process(shared_url, "api", most_runs=0) as api,
        process(shared_url, "worker", most_runs=1) as worker,
    ):
        await known_to(api, "worker")
        worker.model.script(Hang())
        first = await api.start(await api.agent())
        await worker.model_called(1)
        claims = counted(worker, monkeypatch, "claim_next", "claim_these")
        second = await api.start(await api.agent())
        worker.model.script(Say("done"))
        assert claims == []
        async with asyncio.timeout(SOON):
            assert await api.engine.cancel(first)
            await api.records(second.id)
        assert (await api.history.run(DEFAULT_ACTOR, second.id)).stop_reason == "end_turn"
