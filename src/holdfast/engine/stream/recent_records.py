"""The newest records of one run in memory, for the subscribers of this process. Only `feed` uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

MAX_RECENT_CHARS = 1_000_000


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
class RecentRecords:
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
    # Of a run that is driven here: the processes that are told of new records.
    followers: set[str] = field(default_factory=set)
    # Of a run that another process drives: a task that reads the log when it is `behind`, and whether nothing has come
    # since the run was last looked at.
    reader: asyncio.Task[None] | None = None
    behind: asyncio.Event = field(default_factory=asyncio.Event)
    is_quiet: bool = False

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

    def add(self, first_seq: int, records: Sequence[str], *, done: bool) -> bool:
        """Append those of these records that are new, and notify the subscribers. False if some before them are
        missing."""
        known = self.last_seq + 1 - first_seq
        if known < 0:
            return False
        self.append(records[known:])
        self.done = self.done or done
        self.is_quiet = False
        self.notify()
        return True

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
