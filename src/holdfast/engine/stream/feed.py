"""Lets any number of subscribers follow a run's log, from any cursor, while the run goes on or long after.

A subscriber sees only records that are committed, so a replay never differs from what was shown live. The newest
records of a run are also kept in memory while this process drives or follows the run. If another process drives it, one
shared reader polls the log for all subscribers here, woken by hints from the bus. A subscriber that has fallen behind
what is in memory reads the database instead. A slow subscriber never slows a run: publishing appends to a list and sets
an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from holdfast.core.errors import HoldfastError, StorageDown
from holdfast.ports.bus import Bus, HintKind
from holdfast.ports.stores.run_store import LogPage, RunStore

log = logging.getLogger("holdfast.engine")

MAX_RECENT_CHARS = 1_000_000
PAGES_PER_READ = 50
FIRST_PAGES = 2  # the first read is small, so that a subscriber that resumes sees something soon
POLL_SECONDS = 0.5  # in case a hint was lost


@dataclass(frozen=True)
class Batch:
    """Records in order, the first numbered `first_seq`. An empty batch says that nothing came for a while. `gap_until`
    is the last number of those that retention has removed."""

    first_seq: int
    records: tuple[str, ...]
    gap_until: int | None = None

    @cached_property
    def encoded(self) -> bytes:
        """The records as bytes; computed once for all subscribers that read at the same pace."""
        return "".join(self.records).encode()


@dataclass(slots=True)
class _RecentRecords:
    """The newest records of one run, from `first_seq` on. `done`: the run has come to rest. `closed`: no more records
    are added here, and subscribers must read the log elsewhere."""

    first_seq: int = 1
    records: list[str] = field(default_factory=list)
    newest: Batch | None = None
    chars: int = 0
    done: bool = False
    closed: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    subscribers: int = 0
    reader: asyncio.Task[None] | None = None  # polls the log of a run that another process drives
    hinted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.records) - 1

    def append(self, records: Sequence[str]) -> None:
        if not records:
            return
        self.newest = Batch(self.last_seq + 1, tuple(records))
        self.records.extend(records)
        self.chars += sum(map(len, records))
        dropped = 0
        while self.chars > MAX_RECENT_CHARS and dropped < len(self.records) - 1:
            self.chars -= len(self.records[dropped])
            dropped += 1
        if dropped:
            del self.records[:dropped]
            self.first_seq += dropped

    def after(self, cursor: int) -> Batch | None:
        """The records after the cursor, which must not be before `first_seq - 1`."""
        if self.newest is not None and self.newest.first_seq == cursor + 1:
            return self.newest
        fresh = self.records[cursor + 1 - self.first_seq :]
        return Batch(cursor + 1, tuple(fresh)) if fresh else None

    def notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def close(self) -> None:
        self.closed = True
        if self.reader is not None:
            self.reader.cancel()
        self.notify()


class Feed:
    def __init__(self, store: RunStore, bus: Bus) -> None:
        self._store = store
        self._bus = bus
        self._recent: dict[str, _RecentRecords] = {}
        bus.subscribe(self._received)

    # ---- called by the driver of a run ------------------------------------------------------------------------------

    def open(self, run_id: str, last_event: int) -> None:
        """This process drives the run from now on; its next record is `last_event + 1`."""
        self.close(run_id)
        self._recent[run_id] = _RecentRecords(first_seq=last_event + 1)

    def publish(self, run_id: str, records: Sequence[str], *, done: bool = False) -> None:
        """Pass committed records to the subscribers."""
        self._bus.send("moved", run_id)
        recent = self._recent.get(run_id)
        if recent is None or recent.reader is not None:
            return
        recent.append(records)
        recent.done = done
        recent.notify()
        if done:
            del self._recent[run_id]

    def close(self, run_id: str) -> None:
        """Drop the run's cached records; its subscribers then find out where to read next."""
        if recent := self._recent.pop(run_id, None):
            recent.close()

    # ---- called by subscribers --------------------------------------------------------------------------------------

    async def follow(
        self, run_id: str, after: int = 0, idle_seconds: float | None = None
    ) -> AsyncGenerator[Batch, None]:
        """Yield all records after the cursor, then new ones, until the run rests. With `idle_seconds` an empty batch is
        yielded whenever none came for that long."""
        recent = self._subscribe(run_id)
        pages = FIRST_PAGES
        try:
            while True:
                if recent is not None and recent.first_seq <= after + 1:
                    changed = recent.changed  # taken before looking, so that no change in between is missed
                    if (fresh := recent.after(after)) is not None:
                        yield fresh
                        after += len(fresh.records)
                    elif recent.done:
                        return
                    elif recent.closed:
                        recent = None
                    elif not await _is_set_within(changed, idle_seconds):
                        yield Batch(after + 1, ())
                    continue
                page = await self._read_page(run_id, after, pages)
                pages = PAGES_PER_READ
                if page.records or page.gap_until is not None:
                    yield Batch(page.first_seq, page.records, page.gap_until)
                    after = page.first_seq + len(page.records) - 1
                if page.done:
                    return
                if recent is None or recent.closed:
                    recent = self._subscribe(run_id)
                if recent is None and not page.records:
                    # The shared reader starts at the end of the stored log, not at this cursor: a cursor beyond the end
                    # would make it skip records that other subscribers wait for.
                    recent = self._start_reader(run_id, min(after, page.last_event))
        finally:
            self._unsubscribe(run_id, recent)

    async def _read_page(self, run_id: str, after: int, pages: int) -> LogPage:
        """A page of the log. While the database is down, subscribers wait and retry."""
        while True:
            try:
                return await self._store.read_log(run_id, after, pages)
            except StorageDown as error:
                log.warning("the log of run %s cannot be read at the moment: %s", run_id, error)
                await asyncio.sleep(POLL_SECONDS)

    def _subscribe(self, run_id: str) -> _RecentRecords | None:
        if recent := self._recent.get(run_id):
            recent.subscribers += 1
        return recent

    def _unsubscribe(self, run_id: str, recent: _RecentRecords | None) -> None:
        """Remove a subscriber. The shared reader ends with the last one."""
        if recent is None:
            return
        recent.subscribers -= 1
        if recent.reader is not None and recent.subscribers == 0 and self._recent.get(run_id) is recent:
            self.close(run_id)

    # ---- runs that another process drives ---------------------------------------------------------------------------

    def _start_reader(self, run_id: str, after: int) -> _RecentRecords:
        recent = self._recent[run_id] = _RecentRecords(first_seq=after + 1, subscribers=1)
        recent.reader = asyncio.create_task(self._poll_log(run_id, recent), name=f"follow {run_id}")
        return recent

    def _received(self, kind: HintKind, run_id: str) -> None:
        if kind == "moved" and (recent := self._recent.get(run_id)) is not None:
            recent.hinted.set()

    async def _poll_log(self, run_id: str, recent: _RecentRecords) -> None:
        """Read new records after every hint, and every `POLL_SECONDS`. Anything unusual, such as a deleted run or a
        gap, ends the reader; the subscribers then find it when they read themselves."""
        while not recent.done:
            recent.hinted.clear()
            try:
                page = await self._read_page(run_id, recent.last_seq, PAGES_PER_READ)
            except HoldfastError:
                break
            except Exception:
                log.exception("the log of run %s could not be read; trying again", run_id)
                await asyncio.sleep(POLL_SECONDS)
                continue
            if page.gap_until is not None:
                break
            recent.append(page.records)
            recent.done = page.done
            recent.notify()
            if not page.records and not recent.done:
                await _is_set_within(recent.hinted, POLL_SECONDS)
        recent.reader = None
        if self._recent.get(run_id) is recent:
            self.close(run_id)


async def _is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
