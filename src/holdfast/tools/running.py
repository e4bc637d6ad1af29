"""One tool call in progress, seen from the server: its job goes into a cell, its outputs and its result come back.

`ProcessToolbox` makes one per call, on a cell of its own. The cell's line carries the job there, and back the byte
which says that the tool is about to start, then the result's frame. Ending a call is a signal to the cell's pidfd; no
process of ours has to cooperate, and when the cell is known to be dead, nothing of the tool is alive.

It never interprets what the tool wrote; `outcomes` does.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine
from typing import Any

from holdfast.tools.capture import Capture
from holdfast.tools.cell import JOB, STARTED
from holdfast.tools.cells import Cell, Ended

FRAME_HEADER_BYTES = 4
# The frame is JSON with ASCII escapes, at most six bytes for one of the content's; plus its own few keys.
FRAME_SLACK_BYTES = 4096
END_SECONDS = 5.0


class RunningTool:
    """Owns every descriptor of one call. `release` gives all of them back."""

    def __init__(self, cell: Cell, *, output_bytes: int, result_bytes: int) -> None:
        self.cell = cell
        self._captures: list[Capture] = []
        self._theirs: list[int] = []
        try:
            self.stdout = self._pipe(output_bytes)
            self.stderr = self._pipe(output_bytes)
            frame_bytes = FRAME_HEADER_BYTES + 6 * result_bytes + FRAME_SLACK_BYTES
            limit_bytes = len(STARTED) + frame_bytes
            self.result = Capture(os.dup(cell.line.fileno()), limit_bytes, cell.kill, self._more_came)
            self._captures.append(self.result)
        except OSError:
            self.release()
            raise

    def _pipe(self, limit_bytes: int) -> Capture:
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        self._theirs.append(theirs)
        self._captures.append(Capture(ours, limit_bytes))
        return self._captures[-1]

    def start(self, job_text: bytes) -> None:
        """Hand the job over. OSError if the cell is gone: then nothing has run."""
        self._theirs.insert(0, _memory_file(job_text))
        try:
            socket.send_fds(self.cell.line, [JOB], self._theirs)
        finally:
            self._close_theirs()

    def _more_came(self, kept: bytearray) -> None:
        """With its result the call is over, whatever the cell would still do."""
        header = len(STARTED) + FRAME_HEADER_BYTES
        if len(kept) >= header and len(kept) - header >= int.from_bytes(kept[len(STARTED) : header], "big"):
            self.cell.end_with_its_result()

    def _close_theirs(self) -> None:
        """The other side has its own copies now."""
        while self._theirs:
            os.close(self._theirs.pop())

    @property
    def ran(self) -> bool:
        """Whether the tool may have run. To be asked after the end."""
        return self.result.kept.startswith(STARTED)

    @property
    def frame(self) -> bytes:
        return self.result.kept[len(STARTED) :]

    @property
    def ended(self) -> Ended | None:
        """How the cell ended; None as long as nobody has said, and if its zygote was lost."""
        return self.cell.ended.result() if self.cell.ended.done() else None

    def kill(self) -> None:
        self.cell.kill()

    @property
    def left(self) -> str | None:
        """The scratch that the tool has left behind, where it lies on disk."""
        return self.ended.left if self.ended else None

    async def ends_within(self, seconds: float) -> bool:
        return await _within(self.cell.dead.wait(), seconds)

    async def end(self) -> bool:
        """Whether all of the tool's processes are known to be dead, killed if need be."""
        if self.cell.dead.is_set():
            return True
        self.cell.kill()
        return await _within(self.cell.dead.wait(), END_SECONDS)

    async def learn_end(self) -> None:
        """Wait for the word on how it ended, which comes after the death itself."""
        await asyncio.wait([self.cell.ended], timeout=END_SECONDS)

    def release(self) -> None:
        self._close_theirs()
        for capture in self._captures:
            capture.finish()
        self.cell.release()


def _memory_file(content: bytes) -> int:
    """The job in memory: it needs no feeding, is on no disk, and is not in anybody's command line."""
    descriptor = os.memfd_create("holdfast-job", os.MFD_CLOEXEC)
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    return descriptor


async def _within(event: Coroutine[Any, Any, Any], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event
    except TimeoutError:
        return False
    return True
