"""Stores the pages of all streams that this process writes: the first piece of a reply at once, later pieces together.

A transaction costs much more than a page in it, so the pages of all streams are stored together, every `page_seconds`,
which grows with their number. There is one `PageWriter` in a process, and every `Journal` has its pages stored by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from holdfast.core.errors import LostLease, StorageDown
from holdfast.ports.stores.run_store import NewPage, RunStore

SHORTEST_SECONDS = 0.04
LONGEST_SECONDS = 0.1  # a reader does not notice it
SECONDS_PER_FURTHER_STREAM = 0.002


def page_seconds(streams: int) -> float:
    """The time between two pages of a stream while a process writes so many streams."""
    return min(LONGEST_SECONDS, SHORTEST_SECONDS + SECONDS_PER_FURTHER_STREAM * max(0, streams - 1))


class Stream(Protocol):
    """The log of one run, as its driver writes it."""

    def take_page(self) -> NewPage | None:
        """The records that wait to be stored; None if there are none by now."""
        ...

    def page_stored(self, error: Exception | None) -> None:
        """The page that was taken last is stored or, with an error, is not."""
        ...


class PageWriter:
    def __init__(self, store: RunStore) -> None:
        self._store = store
        # Dictionaries, because the order of a set differs between two runs of the simulator.
        self._streams: dict[Stream, None] = {}  # from the first record of a reply to its checkpoint
        self._waiting: dict[Stream, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._wrote_at = 0.0
        self._writing: set[asyncio.Task[None]] = set()

    def soon(self, stream: Stream) -> None:
        """Store what the stream has: at once if its reply begins, else with the next pages."""
        if stream not in self._streams:
            self._streams[stream] = None
            self._write([stream])
            return
        self._waiting[stream] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(
                self._wrote_at + page_seconds(len(self._streams)), self._write_waiting
            )

    def ended(self, stream: Stream) -> None:
        """The stream has nothing to store; its next record begins a reply."""
        self._streams.pop(stream, None)
        self._waiting.pop(stream, None)

    def _write_waiting(self) -> None:
        self._timer = None
        self._wrote_at = asyncio.get_running_loop().time()
        waiting, self._waiting = list(self._waiting), {}
        self._write(waiting)

    def _write(self, streams: Sequence[Stream]) -> None:
        pages = [(stream, page) for stream in streams if (page := stream.take_page()) is not None]
        if pages:
            task = asyncio.create_task(self._store_pages(pages))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def _store_pages(self, pages: Sequence[tuple[Stream, NewPage]]) -> None:
        try:
            lost = set(await self._store.append_events([page for _, page in pages]))
        except Exception as error:
            if len(pages) == 1 or isinstance(error, StorageDown):
                for stream, _ in pages:
                    stream.page_stored(error)
            else:  # a page that cannot be stored must not fail the others
                for one in pages:
                    await self._store_pages([one])
            return
        for stream, page in pages:
            run_id, epoch = page.lease.run_id, page.lease.epoch
            is_lost = run_id in lost
            stream.page_stored(LostLease(f"Run {run_id} is no longer ours (epoch {epoch}).") if is_lost else None)
