"""The inbox's feed: any number of subscribers read which calls begin to wait for a person or are decided.

Announcements are rows with a number. A hint says that an organisation has new ones; one reader per organisation then
reads them, once for all subscribers in this process, and only while there are any. A subscriber that resumes from
further back reads the rows in between itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from holdfast.core.errors import NotFound
from holdfast.core.records import Actor
from holdfast.ports.bus import Bus, Hint
from holdfast.ports.stores.approval_store import Announcement, Approval, ApprovalStore

log = logging.getLogger("holdfast.engine")

POLL_SECONDS = 0.5  # in case a hint was lost
ANNOUNCEMENTS_PER_READ = 100
MAX_RECENT = 1_000  # announcements kept in memory for subscribers that are a little behind


@dataclass(frozen=True, slots=True)
class News:
    """An announcement, and the request as it is now; None if it is gone, with its agent."""

    announcement: Announcement
    approval: Approval | None


@dataclass(slots=True)
class _Inbox:
    """The announcements of one organisation after number `start`, as far as the reader has read them."""

    start: int
    last: int
    recent: deque[News] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    hinted: asyncio.Event = field(default_factory=asyncio.Event)
    followers: int = 0
    reader: asyncio.Task[None] | None = None

    def append(self, news: Sequence[News]) -> None:
        self.recent.extend(news)
        while len(self.recent) > MAX_RECENT:
            self.start = self.recent.popleft().announcement.number
        if news:
            self.last = news[-1].announcement.number
            self.changed.set()
            self.changed = asyncio.Event()


class ApprovalFeed:
    def __init__(self, store: ApprovalStore, bus: Bus) -> None:
        self._store = store
        self._bus = bus
        self._inboxes: dict[str, _Inbox] = {}
        self._opening = asyncio.Lock()
        bus.subscribe(self._received)

    def announced(self, org_id: str) -> None:
        """Call this after a commit that wrote announcements: subscribers in all processes read them."""
        self._bus.send(Hint("approvals", org_id))
        self._wake(org_id)

    def _received(self, hint: Hint) -> None:
        if hint.kind == "approvals":
            self._wake(hint.about)

    def _wake(self, org_id: str) -> None:
        if inbox := self._inboxes.get(org_id):
            inbox.hinted.set()

    async def follow(self, actor: Actor, after: int, idle_seconds: float) -> AsyncGenerator[Sequence[News], None]:
        """What was announced after this number, as it comes; an empty list when nothing came for so long."""
        inbox = await self._join(actor)
        try:
            while True:
                if after < inbox.start:
                    news = await self._read(actor, after)
                    after = news[-1].announcement.number if news else inbox.start
                    if news:
                        yield news
                    continue
                changed = inbox.changed
                if after < inbox.last:
                    news = [one for one in inbox.recent if one.announcement.number > after]
                    after = inbox.last
                    yield news
                elif not await _is_set_within(changed, idle_seconds):
                    yield ()
        finally:
            self._leave(actor, inbox)

    async def _join(self, actor: Actor) -> _Inbox:
        async with self._opening:
            inbox = self._inboxes.get(actor.org_id)
            if inbox is None:
                last = await self._store.last_announcement(actor)
                inbox = self._inboxes[actor.org_id] = _Inbox(last, last)
                inbox.reader = asyncio.create_task(self._keep_reading(actor, inbox), name=f"inbox of {actor.org_id}")
            inbox.followers += 1
            return inbox

    def _leave(self, actor: Actor, inbox: _Inbox) -> None:
        """The last subscriber stops the reader."""
        inbox.followers -= 1
        if inbox.followers == 0 and inbox.reader is not None:
            inbox.reader.cancel()
            self._inboxes.pop(actor.org_id, None)

    async def _keep_reading(self, actor: Actor, inbox: _Inbox) -> None:
        while True:
            await _is_set_within(inbox.hinted, POLL_SECONDS)
            inbox.hinted.clear()  # before reading: a hint that comes meanwhile asks for another read
            try:
                inbox.append(await self._read(actor, inbox.last))
            except Exception as error:  # the database is away, for instance; subscribers wait until it is back
                log.warning("new approvals cannot be read at the moment: %s", error)

    async def _read(self, actor: Actor, after: int) -> list[News]:
        found = await self._store.announcements(actor, after, ANNOUNCEMENTS_PER_READ)
        return [News(one, await self._approval(actor, one.approval_id)) for one in found]

    async def _approval(self, actor: Actor, approval_id: str) -> Approval | None:
        try:
            return await self._store.get(actor, approval_id)
        except NotFound:
            return None


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
