"""Reads one pipe of a tool: keeps the first bytes up to a limit, reads on past it, and remembers that it did.

`running` makes one for each of stdout, stderr and the result. Reading on matters: a tool that prints a gigabyte must
neither fill the server's memory nor stand still on a full pipe. Who wants to act on a flood says so by `when_full`, and
who waits for something in what comes by `when_more`. It never decodes; `outcomes` does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

CHUNK_BYTES = 64 * 1024
# All writers are dead when we look for the last bytes, so only what fits into a pipe can be left.
LAST_BYTES = 2 * 1024 * 1024


class Capture:
    """Owns the reading end of a pipe until `finish`."""

    def __init__(
        self,
        descriptor: int,
        limit_bytes: int,
        when_full: Callable[[], None] | None = None,
        when_more: Callable[[bytearray], None] | None = None,
    ) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._limit_bytes = limit_bytes
        self._when_full = when_full
        self._when_more = when_more
        self._kept = bytearray()
        self._loop = asyncio.get_running_loop()
        self._open = True
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.truncated = False
        self._loop.add_reader(descriptor, self._read_some)

    @property
    def kept(self) -> bytes:
        return bytes(self._kept)

    def _read_some(self) -> int:
        """One chunk per turn of the event loop, so that a flood leaves room for everything else."""
        try:
            chunk = os.read(self._descriptor, CHUNK_BYTES)
        except (BlockingIOError, InterruptedError):
            return 0
        except ConnectionError:
            chunk = b""
        if not chunk:
            self.close()
        room = self._limit_bytes - len(self._kept)
        self._kept += chunk[:room]
        if len(chunk) > room and not self.truncated:
            self.truncated = True
            if self._when_full:
                self._when_full()
        elif chunk and self._when_more:
            self._when_more(self._kept)
        return len(chunk)

    def finish(self) -> None:
        """Take what is still in the pipe and close it; whoever may still hold the other end is not waited for."""
        left = LAST_BYTES
        while self._open and left > 0:
            count = self._read_some()
            left = left - count if count else 0
        self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self.closed.set_result(None)
