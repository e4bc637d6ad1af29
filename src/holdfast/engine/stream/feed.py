"""Lets any number of subscribers follow a run's log, from any cursor, while the run goes on or long after.

A subscriber sees only records that are committed, so a replay never differs from what was shown live. The newest
records of a run are also kept in memory while this process drives or follows the run. A subscriber that has fallen
behind what is in memory reads the database instead. A slow subscriber never slows a run: publishing appends to a list
and sets an event.

If another process drives the run, that process sends what it has committed to those that follow: to the process that
accepted the run, which its row names, and to those that asked with a `follow` hint. Pages are numbered, so a missing
one is noticed, and the log is read. One query for all followed runs finds those whose news did not arrive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence

from holdfast.core.errors import HoldfastError, StorageDown
from holdfast.engine.stream.recent_records import Batch, RecentRecords
from holdfast.ports.bus import Bus, Hint, Page
from holdfast.ports.stores.run_store import LogPage, RunStore

log = logging.getLogger("holdfast.engine")

PAGES_PER_READ = 50
FIRST_PAGES = 2  # the first read is small, so that a subscriber that resumes sees something soon
POLL_SECONDS = 0.25  # a run without news is looked at after once or twice as long, in case a hint was lost


class Feed:
    def __init__(self, store: RunStore, bus: Bus) -> None:
        self._store = store
        self._bus = bus
        self._recent: dict[str, RecentRecords] = {}
        self._watching: asyncio.Task[None] | None = None
        bus.subscribe(self._received)

    # ---- called by the driver of a run ------------------------------------------------------------------------------

    def open(self, run_id: str, last_event: int, follower: str | None = None) -> None:
        """This process drives the run from now on; its next record is `last_event + 1`. `follower` is another process
        that is to be told of new records."""
        self.close(run_id)
        followers = set() if follower is None else {follower}
        self._recent[run_id] = RecentRecords(first_seq=last_event + 1, followers=followers)

    def publish(self, run_id: str, records: Sequence[str], *, done: bool = False) -> None:
        """Pass committed records to the subscribers, here and in other processes."""
        recent = self._recent.get(run_id)
        if recent is None or recent.reader is not None or not (records or done):
            return
        page = Page(recent.last_seq + 1, tuple(records), done)
        for follower in recent.followers:
            self._bus.send(Hint("moved", run_id, page), to=follower)
        recent.append(records)
        recent.done = done
        recent.notify()
        if done:
            del self._recent[run_id]

    def close(self, run_id: str) -> None:
        """Drop the run's cached records; its subscribers then find out where to read next."""
        if recent := self._recent.pop(run_id, None):
            recent.close()

    # ---- called when a run changes that is not driven here ----------------------------------------------------------

    def expect(self, run_id: str, records: Sequence[str]) -> None:
        """Another process will drive this run, which was accepted here with these records, and will send its news."""
        recent = self._follow_elsewhere(run_id, 0)
        recent.append(records)

    def moved(self, run_id: str) -> None:
        """The log of a run that no process drives was written to. Its subscribers may be anywhere."""
        self._bus.send(Hint("moved", run_id))
        self._read_again(run_id)

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
                    self._bus.send(Hint("follow", run_id))
                    self._follow_elsewhere(run_id, min(after, page.last_event)).behind.set()
                    recent = self._subscribe(run_id)
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

    def _subscribe(self, run_id: str) -> RecentRecords | None:
        if recent := self._recent.get(run_id):
            recent.subscribers += 1
        return recent

    def _unsubscribe(self, run_id: str, recent: RecentRecords | None) -> None:
        """Remove a subscriber. Runs that others drive are followed until the last one leaves."""
        if recent is None:
            return
        recent.subscribers -= 1
        if recent.reader is not None and recent.subscribers == 0 and self._recent.get(run_id) is recent:
            self.close(run_id)

    # ---- runs that another process drives ---------------------------------------------------------------------------

    def _follow_elsewhere(self, run_id: str, last_seq: int) -> RecentRecords:
        recent = self._recent[run_id] = RecentRecords(first_seq=last_seq + 1)
        recent.reader = asyncio.create_task(self._read_when_behind(run_id, recent), name=f"follow {run_id}")
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="watch followed runs")
        return recent

    def _received(self, hint: Hint) -> None:
        match hint.kind:
            case "moved" if hint.page is not None:
                self._take(hint.about, hint.page, hint.sender)
            case "moved":
                self._read_again(hint.about)
            case "follow" if (recent := self._recent.get(hint.about)) is not None and recent.reader is None:
                recent.followers.add(hint.sender)
                # The follower may have read the log before this; from here on it gets every page.
                self._bus.send(Hint("moved", hint.about, Page(recent.last_seq + 1, ())), to=hint.sender)
            case "unfollow" if (recent := self._recent.get(hint.about)) is not None:
                recent.followers.discard(hint.sender)

    def _take(self, run_id: str, page: Page, sender: str) -> None:
        recent = self._recent.get(run_id)
        if recent is None:
            self._bus.send(Hint("unfollow", run_id), to=sender)
        elif recent.reader is None:
            return  # it is driven here by now
        elif not recent.add(page.first, page.records, done=page.done):
            recent.behind.set()
        elif recent.done:
            recent.reader.cancel()

    def _read_again(self, run_id: str) -> None:
        if (recent := self._recent.get(run_id)) is not None:
            recent.behind.set()

    async def _read_when_behind(self, run_id: str, recent: RecentRecords) -> None:
        """Read new records when some are missing. Anything unusual, such as a deleted run or a gap, ends the reader;
        the subscribers then find it when they read themselves."""
        while not recent.done:
            await recent.behind.wait()
            recent.behind.clear()
            try:
                page = await self._read_page(run_id, recent.last_seq, PAGES_PER_READ)
            except HoldfastError:
                break
            except Exception:
                log.exception("the log of run %s could not be read; trying again", run_id)
                await asyncio.sleep(POLL_SECONDS)
                recent.behind.set()
                continue
            if page.gap_until is not None:
                break
            recent.add(page.first_seq, page.records, done=page.done)
            if page.records and not recent.done:
                recent.behind.set()  # there may be more
        if self._recent.get(run_id) is recent:
            self.close(run_id)

    async def _watch(self) -> None:
        """Look after the runs that are followed here, while there are any."""
        while followed := {run_id: recent for run_id, recent in self._recent.items() if recent.reader is not None}:
            quiet = {run_id: recent for run_id, recent in followed.items() if recent.is_quiet}
            for recent in followed.values():
                recent.is_quiet = True
            for run_id in [run_id for run_id, recent in quiet.items() if recent.subscribers == 0]:
                quiet.pop(run_id).close()
                del self._recent[run_id]
            try:
                await self._read_what_did_not_arrive(quiet)
            except Exception as error:
                log.warning("followed runs could not be looked at; trying again: %s", error)
            await asyncio.sleep(POLL_SECONDS)
        self._watching = None

    async def _read_what_did_not_arrive(self, quiet: dict[str, RecentRecords]) -> None:
        ends = await self._store.log_ends(sorted(quiet)) if quiet else {}
        for run_id, recent in quiet.items():
            end = ends.get(run_id)  # None if the run was deleted
            if not recent.done and (end is None or end.rests or end.last_event > recent.last_seq):
                self._bus.send(Hint("follow", run_id))
                recent.behind.set()


async def _is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
