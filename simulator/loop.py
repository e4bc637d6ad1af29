"""A deterministic event loop with virtual time, which runs ready callbacks in an order chosen by a seed.

When no callback is ready, time jumps to the next timer. Every callback belongs to the process in whose context it was
made: callbacks of a crashed process never run, those of a frozen one wait until it continues. So a crash can happen
between any two awaits, and nothing of the crashed process is cleaned up, as with `kill -9`.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from itertools import count
from random import Random
from typing import Any


class Process:
    """A simulated process: alive, frozen or dead; `left` after a graceful shutdown."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.frozen = False
        self.left = False
        self.pending_calls = 0  # calls to the store without a response yet
        self.held: list[_Handle] = []


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class _Handle:
    __slots__ = ("args", "callback", "context")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context

    def cancel(self) -> None:
        self.callback = None

    def cancelled(self) -> bool:
        return self.callback is None


class _Task(asyncio.Task[Any]):
    """Numbered, so that sets of tasks have the same order in every replay."""

    def __init__(self, coro: Coroutine[Any, Any, Any], number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class Stuck(Exception):
    """A history took more steps than allowed, so something in it does not come to an end."""


class VirtualLoop(asyncio.AbstractEventLoop):
    """Just enough of an event loop for code that does no I/O of its own."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._ready: list[_Handle] = []
        self._timers: list[tuple[float, int, _Handle]] = []
        self._numbers = count(1)
        self._now = 0.0
        self.steps = 0
        self.after_step: Callable[[], None] = lambda: None

    # ---- the interface that asyncio needs ---------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore complaints: tasks of crashed processes are never awaited, on purpose."""

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, copy_context() if context is None else context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return _Task(coro, next(self._numbers), loop=self, **options)

    # ---- running ----------------------------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, None], most_steps: int) -> None:
        """Run until `main` is done. All other tasks are left as they are."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(main)
            while not task.done():
                self._step()
                if self.steps > most_steps:
                    raise Stuck(f"after {self.steps} steps, at {self._now:.3f} s")
            task.result()
        finally:
            asyncio._set_running_loop(outer)

    def _step(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready:
            if not timers:
                raise Stuck(f"nothing can happen any more, at {self._now:.3f} s")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        place = int(self._random.random() * len(ready))
        handle, ready[place] = ready[place], ready[-1]
        ready.pop()
        if handle.callback is None:
            return
        process = handle.context.get(PROCESS)
        if process is not None and process.dead:
            return
        if process is not None and process.frozen:
            process.held.append(handle)
            return
        self.steps += 1
        handle.context.run(handle.callback, *handle.args)
        self.after_step()

    def thaw(self, process: Process) -> None:
        process.frozen = False
        self._ready.extend(process.held)
        process.held = []

    def spawn(self, process: Process | None, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task of a process; without a process it is never killed."""
        context = copy_context()
        context.run(PROCESS.set, process)
        return self.create_task(coro, context=context)
