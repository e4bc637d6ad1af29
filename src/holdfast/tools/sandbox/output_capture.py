"""Read one pipe of a tool: keep the first bytes up to a limit, and read and drop the rest.

`tool_process` makes one for each of stdout, stderr and the result. The rest is read because a tool that prints a
gigabyte must neither fill the server's memory nor block on a full pipe. `on_overflow` is called once when the limit is
exceeded, `on_data` for every chunk that fits. It never decodes; `outcomes` does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

CHUNK_BYTES = 64 * 1024
# All writers are dead when the last bytes are read, so at most the capacity of a pipe can be left.
MAX_LAST_BYTES = 2 * 1024 * 1024


class Capture:
    """Owns the read end of a pipe until `finish`."""

    def __init__(
        self,
        descriptor: int,
        limit_bytes: int,
        on_overflow: Callable[[], None] | None = None,
        on_data: Callable[[bytearray], None] | None = None,
    ) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._limit_bytes = limit_bytes
        self._when_full = on_overflow
        self._when_more = on_data
        self._received = bytearray()
        self._loop = asyncio.get_running_loop()
        self._open = True
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.truncated = False
        self._loop.add_reader(descriptor, self._read_some)

    @property
    def kept(self) -> bytes:
        return bytes(self._received)

    def _read_some(self) -> int:
        """Read one chunk per event loop iteration, so that a flood does not block other tasks."""
        try:
            chunk = os.read(self._descriptor, CHUNK_BYTES)
        except (BlockingIOError, InterruptedError):
            return 0
        except ConnectionError:
            chunk = b""
        if not chunk:
            self.close()
        space_left = self._limit_bytes - len(self._received)
        self._received += chunk[:space_left]
        if len(chunk) > space_left and not self.truncated:
            self.truncated = True
            if self._when_full:
                self._when_full()
        elif chunk and self._when_more:
            self._when_more(self._received)
        return len(chunk)

    def finish(self) -> None:
        """Read what is still in the pipe and close it, without waiting for processes that may hold the write end."""
        left = MAX_LAST_BYTES
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
