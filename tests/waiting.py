"""A polling helper for conditions without an event in this process: a row on a server, a line in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_SECONDS = 30.0


def until(happened: Callable[[], T]) -> T:
    """Poll `happened` until its result is truthy, and return that."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (given := happened()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return given
