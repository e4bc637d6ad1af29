"""The writing end of a run's log: numbers records, stores them in pages, shows them once they are stored.

Pieces of a streaming reply are gathered into pages: the first piece is stored at once, later ones at most every
`PAGE_SECONDS`, so that durability costs a small insert per page and not per token. What is gathered when a
checkpoint comes is written in the checkpoint's own transaction.
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
        """The number that the next record will take."""
        return self._next + len(self._gathered)

    def show(self, data: WireObject) -> None:
        """Collect one record; it is stored and shown soon. After a page that could not be stored, no further record is:
        a log has no gaps, and the next owner continues where it ends.
        """
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
        """Wait for a page under way and hand over what is gathered, for a checkpoint to write.

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
        """The checkpoint was not written: what was handed over for it waits for the next one."""
        self._gathered = records
        self._resume()

    def written(self, records: list[str], *, done: bool = False) -> None:
        """A checkpoint has stored these."""
        self._next += len(records)
        self._feed.publish(self._held_lease.run_id, records, done=done)
        self._resume()

    def _resume(self) -> None:
        deferred, self._deferred = self._deferred or [], None
        for data in deferred:
            self.show(data)
