"""What the buses have in common: hints are gathered for a moment and carried together; a broken line is mended.

A run that streams says `moved` forty times a second. All hints of a process within `GATHER_SECONDS` leave as one
message, and the same hint twice leaves once, so the cost on the line is bounded by time and not by tokens.
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
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
LAST_WORDS_SECONDS = 1.0
MAX_HINTS = 10_000  # kept while the line is broken; more are dropped, and found by looking
CHANNEL = "holdfast"

_LETTERS: dict[HintKind, str] = {"work": "w", "moved": "m", "cancel": "c"}
_KINDS: dict[str, HintKind] = {letter: kind for kind, letter in _LETTERS.items()}


class Carrier(ABC):
    """A bus over a line that carries texts of at most `longest` bytes to everybody, the sender included."""

    longest = 7_000

    def __init__(self) -> None:
        self._me = uuid4().hex[:12]
        self._listeners: list[Listener] = []
        self._gathered: dict[tuple[HintKind, str], None] = {}
        self._something = asyncio.Event()
        self._nothing = asyncio.Event()
        self._nothing.set()
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    def tell(self, kind: HintKind, about: str) -> None:
        if len(self._gathered) < MAX_HINTS:
            self._gathered[kind, about] = None
            self._something.set()
            self._nothing.clear()

    def hear(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def open(self) -> None:
        """Returns once others can be heard, or when the line turns out to be broken; it is then mended meanwhile."""
        ready = asyncio.Event()
        self._tasks = (
            asyncio.create_task(self._mended("listening", lambda: self._listen(ready.set)), name="bus listening"),
            asyncio.create_task(self._mended("telling", self._tell_all), name="bus telling"),
        )
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({waiting}, timeout=1.0)
        waiting.cancel()

    async def close(self) -> None:
        """The last words get out, if the line is whole."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._nothing.wait(), LAST_WORDS_SECONDS)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _mended(self, doing: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do this for ever; when the line breaks, begin again after a pause that grows."""
        pause = FIRST_PAUSE_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await work()
            except Exception as error:
                log.warning("the bus broke while %s, trying again: %s", doing, error)
            pause = FIRST_PAUSE_SECONDS if loop.time() - began > LONGEST_PAUSE_SECONDS else pause
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _tell_all(self) -> None:
        send = await self._sender()
        while True:
            await self._something.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._something.clear()
            while self._gathered:
                await send(self._next_text())
            self._nothing.set()

    def _next_text(self) -> str:
        """As many hints as one message holds. One that is lost with a broken line was only a hint."""
        lines, length = [self._me], len(self._me)
        while self._gathered:
            kind, about = next(iter(self._gathered))
            length += len(about) + 2
            if length > self.longest and len(lines) > 1:
                break
            del self._gathered[kind, about]
            lines.append(_LETTERS[kind] + about)
        return "\n".join(lines)

    def _deliver(self, text: str) -> None:
        sender, *lines = text.split("\n")
        if sender == self._me:
            return
        for line in lines:
            if kind := _KINDS.get(line[:1]):
                self._say(kind, line[1:])

    def _connected(self) -> None:
        """What was said while the line was down is lost, so look at everything."""
        self._say("work", "")

    def _say(self, kind: HintKind, about: str) -> None:
        for listener in self._listeners:
            try:
                listener(kind, about)
            except Exception:
                log.exception("a listener failed on a hint")

    @abstractmethod
    async def _sender(self) -> Callable[[str], Awaitable[None]]:
        """Connect, and return what sends one text."""

    @abstractmethod
    async def _listen(self, connected: Callable[[], None]) -> None:
        """Connect, say so, and deliver each text that comes, until the line breaks."""
