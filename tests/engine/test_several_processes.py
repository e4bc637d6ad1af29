"""Several processes on one Postgres: each is an engine with connections and a bus of its own, as in real life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.house import House, opened
from holdfast.bus.postgres import PostgresBus
from holdfast.bus.redis import RedisBus
from holdfast.bus.single_process import SingleProcessBus
from holdfast.core.conversation.messages import Approval
from holdfast.core.errors import AskedWrongly, TooManyRuns
from holdfast.core.run_request import RunRequest
from holdfast.engine.run.worker import backoff_seconds
from holdfast.ports.bus import Bus, Hint
from holdfast.ports.stores.run_store import Claim, KnownContext, LogPage, Snapshot, Takeover
from holdfast.records.agent_patch import AgentPatch
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.runs.queue_limits import QueueLimits
from holdfast.testing.script import Call, Hang, Say, Step
from holdfast.testing.waiting import async_until

SOON = 3.0  # far less than the lease, so only a hint can be this fast


@pytest.fixture(params=["postgres", "redis"])
def carried_by(request: pytest.FixtureRequest) -> str:
    return str(request.param) if request.param == "postgres" else str(request.getfixturevalue("redis_url"))


def bus_of(carried_by: str, url: str) -> Bus:
    return PostgresBus(url) if carried_by == "postgres" else RedisBus(carried_by)


def replies(house: House, *steps: Step) -> None:
    """Each step is a reply of its own."""
    for step in steps:
        house.model.script(step)


@asynccontextmanager
async def api_and_worker(url: str, carried_by: str = "postgres") -> AsyncIterator[tuple[House, House]]:
    """A process that only accepts and shows, and one that drives. Leases so long that nothing happens by their end."""
    async with (
        opened(url, owner="api", alone=False, most_runs=0, lease_seconds=60, bus=bus_of(carried_by, url)) as api,
        opened(url, owner="worker", alone=False, lease_seconds=60, bus=bus_of(carried_by, url)) as worker,
    ):
        yield api, worker


@asynccontextmanager
async def another_api(url: str) -> AsyncIterator[House]:
    """A second process that only accepts and shows."""
    options: dict[str, Any] = {"alone": False, "most_runs": 0, "lease_seconds": 60}
    async with opened(url, owner="another api", bus=PostgresBus(url), **options) as api:
        yield api


def test_the_pause_after_empty_polls_grows_up_to_a_bound() -> None:
    assert [backoff_seconds(polls) for polls in (0, 1, 2, 3, 50)] == [0.0, 0.02, 0.04, 0.08, 0.64]


async def test_a_hint_that_comes_while_others_go_first_is_not_forgotten(shared_url: str) -> None:
    """With a lease of a minute nothing is found by looking, only by hints."""
    async with api_and_worker(shared_url) as (api, worker):
        for _ in range(10):
            worker.engine.worker._received(Hint("work"))  # somebody else was quicker each time
            await asyncio.sleep(0)
        for number in range(5):
            worker.model.script(Say(f"answer {number}"))
            run = await api.start(await api.agent())
            async with asyncio.timeout(SOON):
                assert (await api.records(run.id))[-2]["stop_reason"] == "end_turn"


async def test_what_one_process_accepts_another_drives_and_the_first_streams(shared_url: str, carried_by: str) -> None:
    async with api_and_worker(shared_url, carried_by) as (api, worker):
        conversation = await api.agent()
        worker.model.script(Say("hello from the worker"))
        async with asyncio.timeout(SOON):
            run = await api.finished(conversation)
        assert (run.status, run.stop_reason) == ("completed", "end_turn")
        assert await api.kinds(conversation) == ["System", "User", "Assistant"]
        assert await api.records(run.id) == await worker.records(run.id)
        assert api.model.requests == []


async def test_a_worker_reads_of_a_conversation_that_it_knows_only_what_is_new(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its model gets the same as if it had read everything; also after the system message was compiled again."""
    async with api_and_worker(shared_url) as (api, worker):
        conversation = await api.agent()
        found: list[Snapshot] = []
        read = worker.deps.store.takeover

        async def noted(claim: Claim, known: KnownContext | None = None) -> Takeover:
            takeover = await read(claim, known)
            found.append(takeover.snapshot)
            return takeover

        monkeypatch.setattr(worker.deps.store, "takeover", noted)
        for number in range(3):
            if number == 2:
                agent = found[-1].agent.id
                await api.agents.change(DEFAULT_ACTOR, agent, AgentPatch(system="Be brief."))
            worker.model.script(Say(f"answer {number}"))
            await api.finished(conversation, f"question {number}")
        assert [snapshot.context is None for snapshot in found] == [False, True, True]
        assert [type(message.body).__name__ for message in found[1].newer] == ["SystemBody", "UserBody"]
        stored = await api.deps.store.snapshot(conversation)
        asked = worker.model.requests[-1].messages
        assert [message.body for message in asked] == [message.body for message in (stored.context or ())[:-1]]
        assert "Be brief." in str(asked[0].body)


async def test_a_run_is_cancelled_from_the_process_that_does_not_drive_it(shared_url: str, carried_by: str) -> None:
    async with api_and_worker(shared_url, carried_by) as (api, worker):
        conversation = await api.agent()
        worker.model.script(Hang())
        run = await api.start(conversation)
        await worker.model_called(1)
        async with asyncio.timeout(SOON):
            assert await api.engine.cancel(run, "ann", "enough")
        rested = await api.history.run(DEFAULT_ACTOR, run.id)
        assert (rested.status, rested.cancel_asked_by) == ("cancelled", "ann")
        worker.model.script(Say("and on it goes"))
        async with asyncio.timeout(SOON):
            assert (await api.finished(conversation)).status == "completed"


async def test_a_message_interrupts_a_run_that_another_process_drives(shared_url: str) -> None:
    async with api_and_worker(shared_url) as (api, worker):
        conversation = await api.agent()
        replies(worker, Hang(), Say("the second"))
        first = await api.start(conversation)
        await worker.model_called(1)
        async with asyncio.timeout(SOON):
            second = await api.finished(conversation, "no, this", when_busy="interrupt")
        assert second.status == "completed"
        assert (await api.history.run(DEFAULT_ACTOR, first.id)).status == "cancelled"


async def test_a_queued_message_is_taken_up_when_its_turn_comes(shared_url: str) -> None:
    async with api_and_worker(shared_url) as (api, worker):
        conversation = await api.agent()
        replies(worker, Hang(), Say("one"), Say("two"))
        first = await api.start(conversation)
        await worker.model_called(1)
        second = await api.start(conversation, "next", when_busy="queue")
        third = await api.start(conversation, "and then", when_busy="queue")
        async with asyncio.timeout(SOON):
            await api.engine.cancel(first)
            await api.records(second.id)
            await api.records(third.id)
        texts = [record["content"] for record in await api.records(third.id) if "content" in record]
        assert texts == ["two"]


@pytest.mark.parametrize("first_waits", [False, True], ids=["behind a run", "behind a question"])
async def test_what_is_queued_elsewhere_is_taken_up_when_the_run_in_front_of_it_ends(
    shared_url: str, first_waits: bool
) -> None:
    """Two servers that both drive, with leases so long that nothing is found by looking now and then."""
    async with (
        opened(shared_url, owner="a", alone=False, lease_seconds=60, bus=PostgresBus(shared_url)) as a,
        opened(shared_url, owner="b", alone=False, lease_seconds=60, bus=PostgresBus(shared_url)) as b,
    ):
        conversation = await a.agent("pay", gated=("pay",))
        for house in (a, b):
            replies(house, *((Call("pay", id="c1"), Say("not paid")) if first_waits else (Hang(),)), Say("the second"))
        first = await a.start(conversation)
        if first_waits:
            await a.records(first.id)
        else:
            await a.model_called(1)
        second = await b.start(conversation, "next", when_busy="queue")
        if first_waits:
            await a.start(conversation, "", answers=(Approval("c1", False, "no"),))
        else:
            await async_until(lambda: conversation in a.engine.worker._maybe_queued, "the hint")
            await a.engine.cancel(first)
        async with asyncio.timeout(SOON):
            await b.records(second.id)


async def test_an_approval_is_answered_through_a_process_that_drives_nothing(shared_url: str) -> None:
    async with api_and_worker(shared_url) as (api, worker):
        conversation = await api.agent("pay", gated=("pay",))
        replies(worker, Call("pay", id="c1"), Say("paid"))
        async with asyncio.timeout(SOON):
            assert (await api.finished(conversation)).stop_reason == "requires_approval"
            request = RunRequest(answers=(Approval("c1", True),))
            run = await api.engine.start(DEFAULT_ACTOR, conversation, request)
            await api.records(run.id)
        assert [job.name for job in worker.toolbox.calls] == ["pay"]
        assert (await api.history.run(DEFAULT_ACTOR, run.id)).stop_reason == "end_turn"


async def test_of_two_answers_at_the_same_moment_one_is_refused_and_not_accepted_to_fail(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left to others is decided when they take it; until then nobody may change what it was accepted over."""
    async with api_and_worker(shared_url) as (api, worker):
        conversation = await api.agent("pay", gated=("pay",))
        worker.model.script(Call("pay", id="c1"), Call("pay", id="c2"))
        async with asyncio.timeout(SOON):
            await api.finished(conversation)
        begin = api.deps.store.begin

        async def overtaken(*args: Any) -> None:
            monkeypatch.undo()
            first = RunRequest(answers=(Approval("c1", False, "no"),), partial=True)
            await worker.engine.start(DEFAULT_ACTOR, conversation, first)
            await begin(*args)

        monkeypatch.setattr(api.deps.store, "begin", overtaken)
        both = RunRequest(answers=(Approval("c1", True), Approval("c2", True)))
        with pytest.raises(AskedWrongly):
            await api.engine.start(DEFAULT_ACTOR, conversation, both)
        worker.model.script(Say("neither"))
        async with asyncio.timeout(SOON):
            rest = await api.finished(conversation, "", answers=(Approval("c2", False, "no"),))
        assert rest.stop_reason == "end_turn"
        assert worker.toolbox.calls == []


async def test_a_hundred_followers_cost_one_reader(shared_url: str) -> None:
    async with api_and_worker(shared_url) as (api, worker):
        conversation = await api.agent("wait")
        wait = worker.toolbox.block("wait")
        replies(worker, Call("wait", id="c1"), Say("done"))
        run = await api.start(conversation)
        followers = [asyncio.create_task(api.records(run.id)) for _ in range(100)]
        await wait.begun.wait()
        reads = 0
        read_log = api.deps.store.read_log

        async def counted(run_id: str, after: int, limit: int) -> LogPage:
            nonlocal reads
            reads += 1
            return await read_log(run_id, after, limit)

        api.deps.store.read_log = counted  # type: ignore[method-assign]
        wait.may_end.set()
        seen = await asyncio.wait_for(asyncio.gather(*followers), SOON)
        assert all(records == seen[0] for records in seen)
        assert reads < 20


async def test_who_waits_for_a_number_beyond_the_end_does_not_make_the_others_read_without_pause(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with api_and_worker(shared_url) as (accepting, worker), another_api(shared_url) as api:
        run = await accepting.start(await accepting.agent())
        worker.model.script(Hang())
        await worker.model_called(1)
        reads: list[int] = []
        read_log = api.deps.store.read_log

        async def counted(run_id: str, after: int, limit: int) -> LogPage:
            reads.append(after)
            return await read_log(run_id, after, limit)

        monkeypatch.setattr(api.deps.store, "read_log", counted)
        ahead = asyncio.create_task(api.records(run.id, after=1000))
        await async_until(lambda: reads)
        follower = asyncio.create_task(api.records(run.id))
        await asyncio.wait({ahead, follower}, timeout=0.4)
        assert len(reads) < 10
        await api.engine.cancel(run)
        async with asyncio.timeout(SOON):
            assert (await follower)[-1]["stop_reason"] == "cancelled"
            assert await ahead == []


async def test_nothing_is_stuck_when_no_hint_ever_arrives(shared_url: str) -> None:
    """The bus is only for speed."""
    async with (
        opened(shared_url, owner="api", alone=False, most_runs=0, lease_seconds=1, bus=SingleProcessBus()) as api,
        opened(shared_url, owner="worker", alone=False, lease_seconds=1, bus=SingleProcessBus()) as worker,
    ):
        conversation = await api.agent()
        replies(worker, Say("found by looking"), Hang())
        async with asyncio.timeout(10):
            assert (await api.finished(conversation)).status == "completed"
            run = await api.start(conversation, "again")
            await worker.model_called(2)
            assert await api.engine.cancel(run)
        assert (await api.history.run(DEFAULT_ACTOR, run.id)).status == "cancelled"


async def test_a_run_that_no_process_drives_is_cancelled_by_the_process_that_is_asked(shared_url: str) -> None:
    async with opened(shared_url, owner="api", alone=False, most_runs=0) as api:
        conversation = await api.agent()
        run = await api.start(conversation)
        async with asyncio.timeout(SOON):
            assert await api.engine.cancel(run)
        assert (await api.history.run(DEFAULT_ACTOR, run.id)).status == "cancelled"
        assert api.model.requests == []


async def test_workers_share_what_there_is_and_take_nothing_twice(shared_url: str) -> None:
    async with opened(shared_url, owner="api", alone=False, most_runs=0) as api:
        conversations = [await api.agent() for _ in range(40)]
        runs = [await api.start(conversation) for conversation in conversations]
        async with (
            opened(shared_url, owner="w1", alone=False, sweep=False, bus=PostgresBus(shared_url)) as one,
            opened(shared_url, owner="w2", alone=False, sweep=False, bus=PostgresBus(shared_url)) as two,
        ):
            for house in (one, two):
                replies(house, *[Say("done")] * 40)
            await asyncio.gather(one.engine.open(alone=False), two.engine.open(alone=False))
            for run in runs:
                await asyncio.wait_for(api.records(run.id), 20)
            assert len(one.model.requests) + len(two.model.requests) == 40


async def test_beyond_its_room_a_process_leaves_runs_for_later(database_url: str) -> None:
    async with opened(database_url, most_runs=2) as house:
        conversations = [await house.agent() for _ in range(3)]
        replies(house, Hang(), Hang(), Say("the third"))
        first, _, third = [await house.start(conversation) for conversation in conversations]
        assert (await house.history.run(DEFAULT_ACTOR, third.id)).status == "created"
        await house.model_called(2)
        await house.engine.cancel(first)
        await asyncio.wait_for(house.records(third.id), SOON)
        assert (await house.history.run(DEFAULT_ACTOR, third.id)).status == "completed"


async def test_too_many_unfinished_or_queued_runs_are_refused_but_answers_are_not(database_url: str) -> None:
    async with opened(database_url, limits=QueueLimits(unfinished=3, queued=1)) as house:
        waiting = await house.agent("pay", gated=("pay",))
        replies(house, Call("pay", id="c1"), Hang(), Hang(), Hang())
        await house.finished(waiting)
        conversations = [await house.agent() for _ in range(3)]
        for conversation in conversations[:2]:
            await house.start(conversation)
        queued = await house.start(conversations[0], "later", when_busy="queue")
        with pytest.raises(TooManyRuns, match="wait in this conversation"):
            await house.start(conversations[0], "later still", when_busy="queue")
        with pytest.raises(TooManyRuns, match="unfinished"):
            await house.start(conversations[2])
        await house.engine.start(DEFAULT_ACTOR, waiting, RunRequest(answers=(Approval("c1", False, "no"),)))
        await house.engine.cancel(queued)
