"""Writes the event log of a run: numbers records, has them stored, passes them to the feed once they are stored.

The pieces of a streamed reply are stored in pages by the `PageWriter` of the process. Records that are pending at a
checkpoint are written in the transaction of the checkpoint, which does not wait for a page to be due.
"""

from __future__ import annotations

import asyncio

from holdfast.core.conversation.wire_messages import WireObject
from holdfast.engine.run.held_lease import HeldLease
from holdfast.engine.stream import event_records
from holdfast.engine.stream.feed import Feed
from holdfast.engine.stream.page_writer import PageWriter
from holdfast.ports.stores.run_store import NewPage


class Journal:
    def __init__(self, pages: PageWriter, feed: Feed, held_lease: HeldLease, last_event: int) -> None:
        self._pages = pages
        self._feed = feed
        self._held_lease = held_lease
        self._next = last_event + 1
        self._gathered: list[str] = []
        self._page: list[str] = []  # what is being stored
        self._stored = asyncio.Event()  # set unless a page is being stored
        self._stored.set()
        # A list while a checkpoint is being written: what is shown meanwhile is numbered after its records.
        self._deferred: list[WireObject] | None = None
        self.error: BaseException | None = None

    @property
    def next_seq(self) -> int:
        """The number of the next record."""
        return self._next + len(self._gathered)

    def show(self, data: WireObject) -> None:
        """Add one record; it is stored soon, and then shown."""
        if self._deferred is not None:
            self._deferred.append(data)
            return
        self._gathered.append(event_records.numbered(data, self.next_seq))
        if len(self._gathered) == 1 and self._stored.is_set():
            self._pages.soon(self)

    def take_page(self) -> NewPage | None:
        """Called by the page writer. After a page that could not be stored, no further record is stored: a log has no
        gaps, and the next owner of the run continues where it ends."""
        if not self._gathered or self.error is not None:
            return None
        self._page, self._gathered = self._gathered, []
        first, self._next = self._next, self._next + len(self._page)
        self._stored.clear()
        return NewPage(self._held_lease.stored, first, self._page)

    def page_stored(self, error: Exception | None) -> None:
        self._stored.set()
        if error is not None:
            self.error = error
            self._held_lease.lost(error)
            return
        self._feed.publish(self._held_lease.run_id, self._page)
        if self._gathered:
            self._pages.soon(self)

    async def settle(self) -> tuple[int, list[str]]:
        """Wait for a page that is being stored, and return the pending records for a checkpoint to write.

        Returns the number of the first record and the records; the caller appends its own and calls `written`.
        """
        while not self._stored.is_set():  # when this wakes, the next page may be under way
            await self._stored.wait()
        self._pages.ended(self)
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

    def close(self) -> None:
        """Drop what is not stored: the driver has ended, and the next owner of the run continues where the log ends."""
        self._pages.ended(self)
        self._gathered = []
