"""The base class of the Postgres and Redis buses: batches outgoing hints and reconnects after a failure.

A streaming run sends a `moved` hint forty times a second. All hints of a process within `GATHER_SECONDS` leave as one
message, and duplicates leave once, so the traffic is bounded by time and not by the number of tokens.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from uuid import uuid4

from holdfast.ports.bus import HintKind, Listener

log = logging.getLogger("holdfast.bus")

GATHER_SECONDS = 0.003
FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 5.0
CONNECT_TIMEOUT_SECONDS = 1.0
FLUSH_TIMEOUT_SECONDS = 1.0
MAX_PENDING_HINTS = 10_000  # while disconnected; further hints are dropped, and receivers find the work by polling
CHANNEL = "holdfast"

_CODES: dict[HintKind, str] = {"work": "w", "moved": "m", "cancel": "c", "approvals": "a"}
_KINDS: dict[str, HintKind] = {code: kind for kind, code in _CODES.items()}


class BusBase(ABC):
    """A bus over a channel that broadcasts texts of at most `max_bytes` to all processes, the sender included."""

    max_bytes = 7_000

    def __init__(self) -> None:
        self._sender_id = uuid4().hex[:12]
        self._listeners: list[Listener] = []
        self._pending: dict[tuple[HintKind, str], None] = {}
        self._has_pending = asyncio.Event()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    def send(self, kind: HintKind, about: str) -> None:
        if len(self._pending) < MAX_PENDING_HINTS:
            self._pending[kind, about] = None
            self._has_pending.set()
            self._flushed.clear()

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def open(self) -> None:
        """Start sending and listening. Returns once connected, or after a second; connecting is then retried in the
        background, so that a server can start while its bus is unreachable."""
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
        while True:
            await self._has_pending.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._has_pending.clear()
            while self._pending:
                await send(self._next_message())
            self._flushed.set()

    def _next_message(self) -> str:
        """Take as many pending hints as fit into one message. They are lost if sending it fails, which is safe."""
        lines, length = [self._sender_id], len(self._sender_id)
        while self._pending:
            kind, about = next(iter(self._pending))
            length += len(about) + 2
            if length > self.max_bytes and len(lines) > 1:
                break
            del self._pending[kind, about]
            lines.append(_CODES[kind] + about)
        return "\n".join(lines)

    def _receive(self, text: str) -> None:
        sender, *lines = text.split("\n")
        if sender == self._sender_id:
            return
        for line in lines:
            if kind := _KINDS.get(line[:1]):
                self._notify_listeners(kind, line[1:])

    def _hint_to_poll(self) -> None:
        """Called after each connect: hints sent while disconnected are lost, so listeners must poll for all work."""
        self._notify_listeners("work", "")

    def _notify_listeners(self, kind: HintKind, about: str) -> None:
        for listener in self._listeners:
            try:
                listener(kind, about)
            except Exception:
                log.exception("a listener failed on a hint")

    @abstractmethod
    async def _open_sender(self) -> Callable[[str], Awaitable[None]]:
        """Connect, and return a function that sends one text."""

    @abstractmethod
    async def _listen(self, connected: Callable[[], None]) -> None:
        """Connect, call `connected`, then pass each text to `_receive` until the connection fails."""
