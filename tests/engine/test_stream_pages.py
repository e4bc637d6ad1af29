"""The pages of streamed replies: when they are stored, together with which others, and by whom they may be written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.house import House, opened
from holdfast.core.errors import LostLease, StorageDown
from holdfast.engine.stream import page_writer
from holdfast.engine.stream.page_writer import LONGEST_SECONDS, SHORTEST_SECONDS, PageWriter, page_seconds
from holdfast.ports.stores.run_store import Claim, Lease, NewPage, RunStore
from holdfast.storage.runs import claims, event_log
from holdfast.storage.sql.database import Database
from holdfast.testing.script import Hang, Say, Slow
from holdfast.testing.waiting import async_until

RECORD = "data: {}\n\n"


# ---- how long --------------------------------------------------------------------------------------------------------


def test_one_stream_has_pages_of_40_ms_and_many_have_pages_of_100() -> None:
    assert [round(page_seconds(streams), 3) for streams in (0, 1, 2, 16, 31, 32, 1000)] == [
        0.04,
        0.04,
        0.042,
        0.07,
        0.1,
        0.1,
        0.1,
    ]


@given(st.integers(0, 10_000))
def test_more_streams_never_have_shorter_pages(streams: int) -> None:
    assert SHORTEST_SECONDS <= page_seconds(streams) <= page_seconds(streams + 1) <= LONGEST_SECONDS


# ---- together --------------------------------------------------------------------------------------------------------


class Recorded:
    """A store that records what it is asked to append; `refuse` chooses what it raises or reports as lost."""

    def __init__(self) -> None:
        self.written: list[list[str]] = []
        self.lost: list[str] = []
        self.raises: dict[str, Exception] = {}

    async def append_events(self, pages: Sequence[NewPage]) -> Sequence[str]:
        names = [page.lease.run_id for page in pages]
        self.written.append(names)
        for name in names:
            if name in self.raises:
                raise self.raises[name]
        return [name for name in names if name in self.lost]


class Talking:
    """A stream that always has one more record."""

    def __init__(self, name: str, clock: Any) -> None:
        self.lease = Lease(name, "me", 1, clock.now())
        self.endings: asyncio.Queue[Exception | None] = asyncio.Queue()

    def take_page(self) -> NewPage | None:
        return NewPage(self.lease, 1, [RECORD])

    def page_stored(self, error: Exception | None) -> None:
        self.endings.put_nowait(error)


@pytest.fixture
def quick_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_writer, "SHORTEST_SECONDS", 0.01)


async def begun(writer: PageWriter, clock: Any, *names: str) -> list[Talking]:
    streams = [Talking(name, clock) for name in names]
    for stream in streams:
        writer.soon(stream)
        await stream.endings.get()
    return streams


async def test_the_first_piece_is_stored_at_once_and_later_ones_of_all_streams_together(house: House) -> None:
    store = Recorded()
    writer = PageWriter(cast(RunStore, store))
    streams = await begun(writer, house.deps.clock, "a", "b", "c")
    assert store.written == [["a"], ["b"], ["c"]]
    for stream in streams:
        writer.soon(stream)
    assert [await stream.endings.get() for stream in streams] == [None] * 3
    assert store.written[3:] == [["a", "b", "c"]]


async def test_the_next_reply_begins_at_once_again(house: House) -> None:
    store = Recorded()
    writer = PageWriter(cast(RunStore, store))
    (stream,) = await begun(writer, house.deps.clock, "a")
    writer.ended(stream)
    loop = asyncio.get_running_loop()
    began = loop.time()
    writer._wrote_at = began + 60  # a page that waits for its turn would come in a minute
    writer.soon(stream)
    await asyncio.wait_for(stream.endings.get(), 30)


async def test_a_stream_whose_run_is_lost_does_not_stop_the_others(house: House, quick_pages: None) -> None:
    store = Recorded()
    writer = PageWriter(cast(RunStore, store))
    streams = await begun(writer, house.deps.clock, "a", "b")
    store.lost = ["b"]
    for stream in streams:
        writer.soon(stream)
    assert await streams[0].endings.get() is None
    assert isinstance(await streams[1].endings.get(), LostLease)


async def test_a_page_that_cannot_be_stored_does_not_stop_the_others(house: House, quick_pages: None) -> None:
    store = Recorded()
    writer = PageWriter(cast(RunStore, store))
    streams = await begun(writer, house.deps.clock, "a", "b", "c")
    store.raises = {"b": ValueError("not this one")}
    for stream in streams:
        writer.soon(stream)
    endings = [await stream.endings.get() for stream in streams]
    assert [type(ending) for ending in endings] == [type(None), ValueError, type(None)]
    assert store.written[3:] == [["a", "b", "c"], ["a"], ["b"], ["c"]]


async def test_all_streams_hear_that_the_database_is_down(house: House, quick_pages: None) -> None:
    store = Recorded()
    writer = PageWriter(cast(RunStore, store))
    streams = await begun(writer, house.deps.clock, "a", "b")
    store.raises = {"a": StorageDown("gone")}
    for stream in streams:
        writer.soon(stream)
    assert all([isinstance(await stream.endings.get(), StorageDown) for stream in streams])
    assert store.written[2:] == [["a", "b"]]


async def test_streams_are_shown_in_far_fewer_writes_than_tokens(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    conversations = [await house.agent() for _ in range(8)]
    for _ in conversations:
        house.model.script(Slow(0.005), Say("word " * 60))
    written: list[int] = []
    append = house.deps.store.append_events

    async def counted(pages: Sequence[NewPage]) -> Sequence[str]:
        written.append(len(pages))
        return await append(pages)

    monkeypatch.setattr(house.deps.store, "append_events", counted)
    runs = [await house.start(conversation, stream_tokens=True) for conversation in conversations]
    for run in runs:
        records = await house.records(run.id)
        shown = "".join(record["content"] for record in records if record["message_type"] == "assistant_message")
        assert shown == "word " * 60
    assert max(written) > 1
    assert len(written) < 8 * 60 / 4


async def test_the_end_of_a_reply_does_not_wait_for_a_page(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_writer, "SHORTEST_SECONDS", 60.0)
    monkeypatch.setattr(page_writer, "LONGEST_SECONDS", 60.0)
    conversation = await house.agent()
    house.model.script(Say("one two three four"))
    run = await house.start(conversation, stream_tokens=True)
    records = await asyncio.wait_for(house.records(run.id), 30)
    assert "".join(record.get("content") or "" for record in records) == "one two three four"


# ---- by whom ---------------------------------------------------------------------------------------------------------


async def streaming(house: House) -> Lease:
    """A run whose reply has begun and hangs; its lease."""
    conversation = await house.agent()
    house.model.script(Say("half"), Hang())
    run = await house.start(conversation, stream_tokens=True)
    async for batch in house.engine.follow(run.id):
        if any("half" in record for record in batch.records):
            break
    return house.engine.worker.driving[run.id][1].stored


async def test_of_pages_of_several_runs_only_those_of_held_ones_are_written(house: House) -> None:
    store, clock = house.deps.store, house.deps.clock
    held, lost, released = [await streaming(house) for _ in range(3)]
    later = clock.now() + timedelta(minutes=1)
    assert await store.claim(lost.run_id, "other", later, later + timedelta(minutes=1))
    await store.release(released)
    ends = {lease.run_id: await store.last_event(lease.run_id) for lease in (held, lost, released)}
    pages = [NewPage(lease, ends[lease.run_id] + 1, [RECORD, RECORD]) for lease in (lost, held, released)]
    assert set(await store.append_events(pages)) == {lost.run_id, released.run_id}
    for lease in (held, lost, released):
        more = 2 if lease is held else 0
        assert await store.last_event(lease.run_id) == ends[lease.run_id] + more


async def test_a_page_does_not_change_its_run(house: House) -> None:
    """So a page costs one insert, and the lease is left to the heartbeat."""
    lease = await streaming(house)
    before = await house.deps.store.run(lease.run_id)
    end = await house.deps.store.last_event(lease.run_id)
    assert await house.deps.store.append_events([NewPage(lease, end + 1, [RECORD])]) == []
    assert await house.deps.store.run(lease.run_id) == before
    log = await house.deps.store.read_log(lease.run_id, end, 10)
    assert (log.records, log.last_event, log.done) == ((RECORD,), end + 1, False)


async def test_a_new_owner_numbers_its_events_after_the_last_page(database_url: str) -> None:
    async with opened(database_url, sweep=False) as house, opened(database_url, owner="other", sweep=False) as other:
        lease = await streaming(house)
        end = await house.deps.store.last_event(lease.run_id)
        assert end > (await house.deps.store.run(lease.run_id)).last_event
        other.model.script(Say("whole"))
        await house.deps.store.release(lease)
        await other.engine.open(alone=False)
        records = await asyncio.wait_for(other.records(lease.run_id), 30)
        numbers = [record["seq_id"] for record in records if record.get("seq_id")]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) > end


async def test_a_claim_waits_for_a_page_that_is_being_written_and_the_next_page_is_refused(shared_url: str) -> None:
    """On Postgres, where the two can overlap: the new owner never misses a page of the old one."""
    async with opened(shared_url, sweep=False) as house:
        lease, now = await streaming(house), house.deps.clock.now()
        end = await house.deps.store.last_event(lease.run_id)
        later = now + timedelta(minutes=1)
        database: Database = house.database
        with ThreadPoolExecutor(1) as threads, database.engine.connect() as writing:
            with writing.begin():
                assert event_log.append(writing, [NewPage(lease, end + 1, [RECORD])], now) == []

                def claim() -> tuple[Claim | None, int]:
                    with database.engine.begin() as connection:
                        claimed = claims.claim(connection, lease.run_id, "other", later, later)
                        return claimed, event_log.last_event(connection, lease.run_id)

                claiming = threads.submit(claim)

                def waits() -> bool:
                    with database.engine.connect() as watching:
                        found = watching.exec_driver_sql("SELECT count(*) FROM pg_locks WHERE NOT granted")
                        return bool(found.scalar_one())

                await async_until(waits, "the claim to wait for the page")
                assert not claiming.done()
            claimed, seen = claiming.result(30)
            assert claimed is not None
            assert seen == end + 1
            with writing.begin():
                assert event_log.append(writing, [NewPage(lease, end + 2, [RECORD])], now) == [lease.run_id]
