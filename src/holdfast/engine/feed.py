"""The feed: any number of subscribers follow a run's log, from any cursor, while it runs or long after.

A subscriber reads what is stored; what it sees live is only what has been committed, so a replay can never differ.
The newest records of a run are also kept in memory while somebody here drives or follows it: those of a run driven
here as they are committed, those of a run driven by another process as they are read, once for all who follow it. A
subscriber that has fallen behind them reads the database instead. Nobody waits for a subscriber: publishing appends
to a list and wakes sleepers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from holdfast.core.errors import HoldfastError, StorageDown
from holdfast.ports.bus import Bus, HintKind
from holdfast.ports.runs import LogPage, RunStore

log = logging.getLogger("holdfast.engine")

MAX_RECENT_CHARS = 1_000_000
PAGES_PER_READ = 50
FIRST_PAGES = 2  # whoever resumes sees something before all of it is read
POLL_SECONDS = 0.5  # for hints that got lost


@dataclass(frozen=True)
class Batch:
    """Records in order, the first of them numbered `first_seq`; none if there was nothing for a while. `gap_until`
    names numbers that retention removed."""

    first_seq: int
    records: tuple[str, ...]
    gap_until: int | None = None

    @cached_property
    def whole(self) -> bytes:
        """As it is sent; worked out once for all who follow at the same pace."""
        return "".join(self.records).encode()


@dataclass(slots=True)
class _Live:
    """The newest records of one run, from `first_seq` on. `done`: the run rests. `ended`: nothing is added any more."""

    first_seq: int = 1
    records: list[str] = field(default_factory=list)
    newest: Batch | None = None
    chars: int = 0
    done: bool = False
    ended: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    followers: int = 0
    reading: asyncio.Task[None] | None = None  # of a run that is driven elsewhere
    moved: asyncio.Event = field(default_factory=asyncio.Event)

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
        """What comes after the cursor, which must not be further back than the records go."""
        if self.newest is not None and self.newest.first_seq == cursor + 1:
            return self.newest
        fresh = self.records[cursor + 1 - self.first_seq :]
        return Batch(cursor + 1, tuple(fresh)) if fresh else None

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def end(self) -> None:
        self.ended = True
        if self.reading is not None:
            self.reading.cancel()
        self.wake()


class Feed:
    def __init__(self, store: RunStore, bus: Bus) -> None:
        self._store = store
        self._bus = bus
        self._live: dict[str, _Live] = {}
        bus.hear(self._heard)

    # ---- by whoever drives a run ------------------------------------------------------------------------------------

    def open(self, run_id: str, last_event: int) -> None:
        """A run is driven here from now on; its next record is `last_event + 1`."""
        self.close(run_id)
        self._live[run_id] = _Live(first_seq=last_event + 1)

    def publish(self, run_id: str, records: Sequence[str], *, done: bool = False) -> None:
        """These records are committed."""
        self._bus.tell("moved", run_id)
        live = self._live.get(run_id)
        if live is None or live.reading is not None:
            return
        live.append(records)
        live.done = done
        live.wake()
        if done:
            del self._live[run_id]

    def close(self, run_id: str) -> None:
        """The run is no longer driven here, or from now on; followers look again where its records are."""
        if live := self._live.pop(run_id, None):
            live.end()

    # ---- by whoever follows one -------------------------------------------------------------------------------------

    async def follow(
        self, run_id: str, after: int = 0, idle_seconds: float | None = None
    ) -> AsyncGenerator[Batch, None]:
        """Everything after the cursor, then what comes, until the run rests. Who wants to know that nothing came for so
        many seconds gets an empty batch then."""
        live = self._join(run_id)
        pages = FIRST_PAGES
        try:
            while True:
                if live is not None and live.first_seq <= after + 1:
                    changed = live.changed
                    if (fresh := live.after(after)) is not None:
                        yield fresh
                        after += len(fresh.records)
                    elif live.done:
                        return
                    elif live.ended:
                        live = None
                    elif not await _happens(changed, idle_seconds):
                        yield Batch(after + 1, ())
                    continue
                page = await self._page(run_id, after, pages)
                pages = PAGES_PER_READ
                if page.records or page.gap_until is not None:
                    yield Batch(page.first_seq, page.records, page.gap_until)
                    after = page.first_seq + len(page.records) - 1
                if page.done:
                    return
                if live is None or live.ended:
                    end = min(after, page.last_event)
                    live = self._join(run_id) or (None if page.records else self._join_elsewhere(run_id, end))
        finally:
            self._leave(run_id, live)

    async def _page(self, run_id: str, after: int, pages: int) -> LogPage:
        """A page of the log. While the database is away, followers wait: the run does too, or goes on elsewhere."""
        while True:
            try:
                return await self._store.read_log(run_id, after, pages)
            except StorageDown as error:
                log.warning("the log of run %s cannot be read at the moment: %s", run_id, error)
                await asyncio.sleep(POLL_SECONDS)

    def _join(self, run_id: str) -> _Live | None:
        if live := self._live.get(run_id):
            live.followers += 1
        return live

    def _leave(self, run_id: str, live: _Live | None) -> None:
        """The last one to leave a run that is driven elsewhere turns off the light."""
        if live is None:
            return
        live.followers -= 1
        if live.reading is not None and live.followers == 0 and self._live.get(run_id) is live:
            self.close(run_id)

    # ---- runs that another process drives ---------------------------------------------------------------------------

    def _join_elsewhere(self, run_id: str, after: int) -> _Live:
        """From the end of what is stored: whoever waits for a number beyond it must not keep it from the others."""
        live = self._live[run_id] = _Live(first_seq=after + 1, followers=1)
        live.reading = asyncio.create_task(self._read_on(run_id, live), name=f"follow {run_id}")
        return live

    def _heard(self, kind: HintKind, run_id: str) -> None:
        if kind == "moved" and (live := self._live.get(run_id)) is not None:
            live.moved.set()

    async def _read_on(self, run_id: str, live: _Live) -> None:
        """Read what is new whenever something moved, and now and then in case that was not heard. What is not as usual
        (the run was deleted, its events are gone) is left to the followers to find."""
        while not live.done:
            live.moved.clear()
            try:
                page = await self._page(run_id, live.last_seq, PAGES_PER_READ)
            except HoldfastError:
                break
            except Exception:
                log.exception("the log of run %s could not be read; trying again", run_id)
                await asyncio.sleep(POLL_SECONDS)
                continue
            if page.gap_until is not None:
                break
            live.append(page.records)
            live.done = page.done
            live.wake()
            if not page.records and not live.done:
                await _happens(live.moved, POLL_SECONDS)
        live.reading = None
        if self._live.get(run_id) is live:
            self.close(run_id)


async def _happens(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether it happens within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
