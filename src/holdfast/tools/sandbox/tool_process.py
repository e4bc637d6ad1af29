"""One tool call in progress, seen from the server: it sends the job to a cell and collects the outputs and the result.

`ProcessToolbox` makes one per call, each on its own cell. The control socket carries the job to the cell, and back the
byte which says that the tool is about to start. Both outputs and the result come over pipes. To end a call the server
sends a signal to the cell's pidfd; no process of ours has to cooperate, and when the cell is known to be dead, no
process of the tool is alive.

The control socket is the only socket between the two. The cell closes it before the tool starts, so everything read
from it was written by our own code.

It never interprets the tool's output; `outcomes` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.tools.inside import result_frame
from holdfast.tools.inside.cell import JOB, STARTED
from holdfast.tools.sandbox.cell_handle import CellHandle, Ended
from holdfast.tools.sandbox.output_capture import Capture

CONTROL_BYTES = 4096
END_SECONDS = 5.0


class ToolProcess:
    """Owns every descriptor of one call until `release`."""

    def __init__(self, cell: CellHandle, *, output_bytes: int, result_bytes: int) -> None:
        self.cell = cell
        self._captures: list[Capture] = []
        self._descriptors_to_send: list[int] = []
        self._control_reply = b""  # what the cell sent on its control socket
        try:
            self.stdout = self._pipe(output_bytes)
            self.stderr = self._pipe(output_bytes)
            self.result = self._pipe(result_frame.max_frame_bytes(result_bytes), cell.kill, self._on_result_bytes)
        except OSError:
            self.release()
            raise

    def _pipe(
        self,
        limit_bytes: int,
        on_overflow: Callable[[], None] | None = None,
        on_data: Callable[[bytearray], None] | None = None,
    ) -> Capture:
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        self._descriptors_to_send.append(write_end)
        self._captures.append(Capture(read_end, limit_bytes, on_overflow, on_data))
        return self._captures[-1]

    def start(self, job: bytes) -> None:
        """Send the job. OSError if the cell is gone: then nothing has run."""
        self._descriptors_to_send.insert(0, _memory_file(job))
        try:
            socket.send_fds(self.cell.control, [JOB], self._descriptors_to_send)
        finally:
            self._close_sent_descriptors()

    def _on_result_bytes(self, kept: bytearray) -> None:
        """Kill the cell when the result is complete: the call is over, whatever the tool would still do."""
        size = result_frame.frame_size(kept)
        if size is not None and len(kept) >= size:
            self.cell.kill_after_result()

    def _close_sent_descriptors(self) -> None:
        """The cell has its own copies now."""
        while self._descriptors_to_send:
            os.close(self._descriptors_to_send.pop())

    @property
    def ran(self) -> bool:
        """Whether the tool may have run. Valid only after the end."""
        return self._control_reply.startswith(STARTED)

    @property
    def why_not_started(self) -> str:
        return self._control_reply.decode("utf-8", "replace")

    @property
    def frame(self) -> bytes:
        return self.result.kept

    @property
    def ended(self) -> Ended | None:
        """How the cell ended; None until the zygote has reported it, and if the zygote was lost."""
        return self.cell.ended.result() if self.cell.ended.done() else None

    def kill(self) -> None:
        self.cell.kill()

    async def ends_within(self, seconds: float) -> bool:
        return await _within(self.cell.dead.wait(), seconds)

    async def end(self) -> bool:
        """Kill the cell if it still runs; returns whether all of the tool's processes are known to be dead."""
        if self.cell.dead.is_set():
            return True
        self.cell.kill()
        return await _within(self.cell.dead.wait(), END_SECONDS)

    async def wait_for_exit_report(self) -> None:
        """Wait for the zygote's report of how the cell ended, which comes after its death."""
        await asyncio.wait([self.cell.ended], timeout=END_SECONDS)

    def release(self) -> None:
        self._close_sent_descriptors()
        for capture in self._captures:
            capture.finish()
        with contextlib.suppress(OSError):
            self._control_reply = self._control_reply or self.cell.control.recv(CONTROL_BYTES)
        self.cell.release()


def _memory_file(content: bytes) -> int:
    """The job as a memory file: it need not be fed to a pipe, and is neither on disk nor in a command line."""
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
