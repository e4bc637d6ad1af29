"""Writes the event log of a run: numbers records, stores them in pages, passes them to the feed once they are stored.

Deltas of a streamed reply are collected into pages: the first is stored at once, later ones at most every
`PAGE_SECONDS`. So durability costs a small insert per page and not per token. Records that are pending at a checkpoint
are written in the transaction of the checkpoint.
"""

from __future__ import annotations

import asyncio

from holdfast.core.conversation.wire_messages import WireObject
from holdfast.engine.run.held_lease import HeldLease
from holdfast.engine.stream import event_records
from holdfast.engine.stream.feed import Feed
from holdfast.ports.stores.run_store import RunStore

PAGE_SECONDS = 0.025


class Journal:
    def __init__(self, store: RunStore, feed: Feed, held_lease: HeldLease, last_event: int) -> None:
        self._store = store
        self._feed = feed
        self._held_lease = held_lease
        self._next = last_event + 1
        self._gathered: list[str] = []
        self._flushing: asyncio.Task[None] | None = None
        self._flushed_at = 0.0
        # A list while a checkpoint is being written: what is shown meanwhile is numbered after its records.
        self._deferred: list[WireObject] | None = None
        self.error: BaseException | None = None

    @property
    def next_seq(self) -> int:
        """The number of the next record."""
        return self._next + len(self._gathered)

    def show(self, data: WireObject) -> None:
        """Add one record; it is stored soon, and then shown. After a page that could not be stored, no further record
        is stored: a log has no gaps, and the next owner of the run continues where it ends."""
        if self._deferred is not None:
            self._deferred.append(data)
            return
        self._gathered.append(event_records.numbered(data, self.next_seq))
        if self._flushing is None and self.error is None:
            self._flushing = asyncio.create_task(self._flush_soon())

    async def _flush_soon(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._gathered:
                pause = self._flushed_at + PAGE_SECONDS - loop.time()
                if pause > 0:
                    await asyncio.sleep(pause)
                await self._flush()
        except Exception as error:
            self.error = error
            self._held_lease.lost(error)
        finally:
            self._flushing = None

    async def _flush(self) -> None:
        records, self._gathered = self._gathered, []
        if not records:
            return
        first, self._next = self._next, self._next + len(records)
        lease = self._held_lease.renewed()
        if await self._store.append_events(lease, first, records):
            self._held_lease.cancel_asked()
        self._held_lease.kept(lease)
        self._flushed_at = asyncio.get_running_loop().time()
        self._feed.publish(self._held_lease.run_id, records)

    async def settle(self) -> tuple[int, list[str]]:
        """Wait for a page that is being stored, and return the pending records for a checkpoint to write.

        Returns the number of the first record and the records; the caller appends its own and calls `written`.
        """
        while self._flushing is not None:
            await asyncio.shield(asyncio.wait({self._flushing}))
        if self.error is not None:
            raise self.error
        records, self._gathered = self._gathered, []
        self._deferred = []
        return self._next, records

    def take_back(self, records: list[str]) -> None:
        """Called if the checkpoint was not written: its records stay pending for the next one."""
        self._gathered = records
        self._resume()

    def written(self, records: list[str], *, done: bool = False) -> None:
        """Called when a checkpoint has stored these records."""
        self._next += len(records)
        self._feed.publish(self._held_lease.run_id, records, done=done)
        self._resume()

    def _resume(self) -> None:
        deferred, self._deferred = self._deferred or [], None
        for data in deferred:
            self.show(data)
