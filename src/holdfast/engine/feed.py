"""The feed: any number of subscribers follow a run's log, from any cursor, while it runs or long after.

A subscriber reads what is stored; what it sees live is only what has been committed, so a replay can never differ.
The newest records of runs driven here are also kept in memory, and a subscriber that has fallen behind them reads
the database instead. Nobody waits for a subscriber: publishing appends to a list and wakes sleepers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from holdfast.ports.runs import RunStore

MAX_RECENT_CHARS = 1_000_000
PAGES_PER_READ = 50
POLL_SECONDS = 0.5


@dataclass(slots=True)
class _Live:
    """The newest records of one run that is driven in this process."""

    first_seq: int = 1
    records: list[str] = field(default_factory=list)
    chars: int = 0
    done: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def append(self, records: Sequence[str]) -> None:
        self.records.extend(records)
        self.chars += sum(map(len, records))
        dropped = 0
        while self.chars > MAX_RECENT_CHARS and dropped < len(self.records) - 1:
            self.chars -= len(self.records[dropped])
            dropped += 1
        if dropped:
            del self.records[:dropped]
            self.first_seq += dropped

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


@dataclass(frozen=True, slots=True)
class Batch:
    """Records in order, the first of them numbered `first_seq`. `gap_until` names numbers that retention removed."""

    first_seq: int
    records: tuple[str, ...]
    gap_until: int | None = None


class Feed:
    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._live: dict[str, _Live] = {}

    def open(self, run_id: str, last_event: int) -> None:
        """A run is driven here from now on; its next record is `last_event + 1`."""
        self.close(run_id)
        self._live[run_id] = _Live(first_seq=last_event + 1)

    def publish(self, run_id: str, records: Sequence[str], *, done: bool = False) -> None:
        """These records are committed."""
        live = self._live.get(run_id)
        if live is None:
            return
        live.append(records)
        live.done = live.done or done
        live.wake()
        if done:
            del self._live[run_id]

    def close(self, run_id: str) -> None:
        """The run is no longer driven here; followers go on from the database."""
        if live := self._live.pop(run_id, None):
            live.wake()

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Batch, None]:
        """Everything after the cursor, then what comes, until the run rests."""
        live = self._live.get(run_id)
        while True:
            if live is not None and after + 1 >= live.first_seq:
                fresh = live.records[after + 1 - live.first_seq :]
                if fresh:
                    yield Batch(after + 1, tuple(fresh))
                    after += len(fresh)
                elif live.done:
                    return
                elif self._live.get(run_id) is not live:
                    live = self._live.get(run_id)
                else:
                    await live.changed.wait()
                continue
            page = await self._store.read_log(run_id, after, PAGES_PER_READ)
            if page.records or page.gap_until is not None:
                yield Batch(page.first_seq, page.records, page.gap_until)
                after = page.first_seq + len(page.records) - 1
            if page.done:
                return
            live = self._live.get(run_id)
            if not page.records and live is None:
                await asyncio.sleep(POLL_SECONDS)
