"""Polling helpers for tests: wait until a condition holds, up to a deadline.

They are for conditions that send no event to this process: a row that another process writes, a line in a log, the end
of a process that is not a child. Where there is an event, await the event.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

# Long enough for a machine that is busy with other tests: the deadline ends a test that would hang.
DEADLINE_SECONDS = 60.0
POLL_SECONDS = 0.01


def until(
    condition: Callable[[], T],
    what: str = "the condition",
    *,
    seconds: float = DEADLINE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> T:
    """Poll until the result of `condition` is truthy, and return it; TimeoutError at the deadline."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        _check(deadline, what, seconds)
        time.sleep(poll_seconds)
    return found


async def async_until(
    condition: Callable[[], T],
    what: str = "the condition",
    *,
    seconds: float = DEADLINE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> T:
    """Like `until`, and other tasks run meanwhile."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        _check(deadline, what, seconds)
        await asyncio.sleep(poll_seconds)
    return found


async def until_found(
    read: Callable[[], Awaitable[T]], what: str = "the condition", *, seconds: float = DEADLINE_SECONDS
) -> T:
    """Like `async_until`, for a condition that is itself awaited, such as a read from the database."""
    deadline = time.monotonic() + seconds
    while not (found := await read()):
        _check(deadline, what, seconds)
        await asyncio.sleep(POLL_SECONDS)
    return found


def _check(deadline: float, what: str, seconds: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"Waited {seconds:g} seconds for {what}.")
