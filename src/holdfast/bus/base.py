"""The base class of the Postgres and Redis buses: gathers outgoing hints and reconnects after a failure.

A process listens on two channels: one that all processes share, and one of its own, so that a hint for one process
wakes no other. A hint leaves at once if none was sent for `GATHER_SECONDS`; what comes meanwhile leaves together,
duplicates once, and the pages of one run as one. So the traffic is bounded by time and not by the number of tokens.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from holdfast.bus.hint_codec import decode, encode_all
from holdfast.ports.bus import Hint, HintKind, Listener, Page

log = logging.getLogger("holdfast.bus")

GATHER_SECONDS = 0.003
FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 5.0
CONNECT_TIMEOUT_SECONDS = 1.0
FLUSH_TIMEOUT_SECONDS = 1.0
MAX_PENDING_HINTS = 10_000  # while disconnected; further hints are dropped, and receivers find the work by polling
CHANNEL = "holdfast"  # of all processes

Message = tuple[str, str]  # a channel and a text
_Pending = dict[tuple[HintKind, str], Hint]


def channel_of(name: str) -> str:
    """The channel of one process. The name of a Postgres channel has at most 63 bytes, that of a host may be longer."""
    return f"{CHANNEL}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


class BusBase(ABC):
    """A bus over channels that carry texts of at most `max_bytes`."""

    max_bytes = 7_000

    def __init__(self) -> None:
        self._name = ""
        self._free_slots = 0
        self._listeners: list[Listener] = []
        self._pending: dict[str, _Pending] = {}  # by channel
        self._has_pending = asyncio.Event()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    def send(self, hint: Hint, to: str | None = None) -> None:
        pending = self._pending.setdefault(CHANNEL if to is None else channel_of(to), {})
        key = (hint.kind, hint.about)
        if key in pending:
            pending[key] = self._together(pending[key], hint)
        elif sum(map(len, self._pending.values())) < MAX_PENDING_HINTS:
            pending[key] = self._together(None, hint)
        self._has_pending.set()
        self._flushed.clear()

    def _together(self, before: Hint | None, hint: Hint) -> Hint:
        """One hint for both. Pages that do not follow each other, or are too large, are left to be read."""
        page = hint.page
        if before is not None:
            page = None if page is None or before.page is None else _joined(before.page, page)
        if page is not None and sum(map(len, page.records)) > self.max_bytes // 2:
            page = None
        return Hint(hint.kind, hint.about, page)

    def offer_slots(self, free_slots: int) -> None:
        self._free_slots = free_slots

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def open(self, name: str) -> None:
        """Start sending and listening. Returns once connected, or after a second; connecting is then retried in the
        background, so that a server can start while its bus is unreachable."""
        self._name = name
        ready = asyncio.Event()
        self._tasks = (
            asyncio.create_task(self._retry_forever("listening", lambda: self._listen(ready.set)), name="bus listener"),
            asyncio.create_task(self._retry_forever("sending", self._send_pending), name="bus sender"),
        )
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({waiting}, timeout=CONNECT_TIMEOUT_SECONDS)
        waiting.cancel()

    async def close(self) -> None:
        """Send the pending hints, waiting at most `FLUSH_TIMEOUT_SECONDS` for it, then stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._flushed.wait(), FLUSH_TIMEOUT_SECONDS)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _retry_forever(self, doing: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`, which ends only by failing, again and again, with exponential backoff between the attempts."""
        pause = FIRST_RETRY_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await work()
            except Exception as error:
                log.warning("the bus failed while %s, retrying: %s", doing, error)
            pause = FIRST_RETRY_SECONDS if loop.time() - began > MAX_RETRY_SECONDS else pause
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_RETRY_SECONDS)

    async def _send_pending(self) -> None:
        send = await self._open_sender()
        loop = asyncio.get_running_loop()
        sent_at = 0.0
        while True:
            await self._has_pending.wait()
            if (pause := sent_at + GATHER_SECONDS - loop.time()) > 0:
                await asyncio.sleep(pause)
            sent_at = loop.time()
            self._has_pending.clear()
            # What is taken here is lost if sending it fails, which is safe.
            pending, self._pending = self._pending, {}
            await send(
                [
                    (channel, text)
                    for channel, hints in pending.items()
                    for text in encode_all(self._name, self._free_slots, hints.values(), self.max_bytes)
                ]
            )
            if not self._pending:
                self._flushed.set()

    def _receive(self, text: str) -> None:
        try:
            hints = decode(text)
        except (ValueError, TypeError, LookupError) as error:
            log.warning("a message on the bus cannot be read, and is ignored: %s", error)
            return
        for hint in hints:
            if hint.sender != self._name:
                self._notify_listeners(hint)

    def _connected(self) -> None:
        """Called after each connect: hints sent while disconnected are lost, so listeners must poll for all work."""
        self._notify_listeners(Hint("work"))
        if self._free_slots:
            self.send(Hint("slots"))

    def _notify_listeners(self, hint: Hint) -> None:
        for listener in self._listeners:
            try:
                listener(hint)
            except Exception:
                log.exception("a listener failed on a hint")

    @abstractmethod
    async def _open_sender(self) -> Callable[[Sequence[Message]], Awaitable[None]]:
        """Connect, and return a function that sends texts."""

    @abstractmethod
    async def _listen(self, connected: Callable[[], None]) -> None:
        """Connect, call `connected` and `_connected`, then pass each text to `_receive` until the connection fails."""


def _joined(before: Page, page: Page) -> Page | None:
    follows = before.first + len(before.records) == page.first
    return Page(before.first, (*before.records, *page.records), page.done) if follows else None
