"""One tool call in progress, seen from the server: its pipes, its line to the supervisor, and how to end it.

`ProcessToolbox` makes one per call. The line carries two messages towards us, `P` with the supervisor's
pidfd when it is there, and `E<wait status>` when everything the tool started is dead; its end without an `E` means
that the supervisor itself was killed. Towards the supervisor it carries `G` (go), and ending it means kill.

It never interprets what the tool wrote; `outcomes` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from typing import Any

from holdfast.tools.capture import Capture
from holdfast.tools.supervisor import GO

# A supervisor that was stopped or starved by its tool is killed after this; the fork server then ends the rest.
KILL_GRACE_SECONDS = 0.5
LAST_GRACE_SECONDS = 1.0
FRAME_HEADER_BYTES = 4
# The frame is JSON with ASCII escapes, at most six bytes for one of the content's; plus its own few keys.
FRAME_SLACK_BYTES = 4096


class RunningTool:
    """Owns every descriptor of one call. `release` gives all of them back."""

    def __init__(self, job_text: bytes, *, output_bytes: int, result_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.setblocking(False)
        self._theirs = [theirs.detach()]
        self._captures: list[Capture] = []
        self._pidfd: int | None = None
        self._going = False
        self.started: asyncio.Future[bool] = self._loop.create_future()
        self.ended: asyncio.Future[int | None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        try:
            self._theirs.append(_memory_file(job_text))
            self.stdout = self._pipe(output_bytes)
            self.stderr = self._pipe(output_bytes)
            self.result = self._pipe(FRAME_HEADER_BYTES + 6 * result_bytes + FRAME_SLACK_BYTES)
        except OSError:
            self.release()
            raise
        self._loop.add_reader(self._line, self._heard)

    def _pipe(self, limit_bytes: int) -> Capture:
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        self._theirs.append(theirs)
        self._captures.append(Capture(ours, limit_bytes))
        return self._captures[-1]

    @property
    def descriptors_to_send(self) -> tuple[int, ...]:
        """In the order of `supervisor.CallFiles`."""
        return tuple(self._theirs)

    def sent(self) -> None:
        """The other side has its own copies now."""
        while self._theirs:
            os.close(self._theirs.pop())

    def _heard(self) -> None:
        try:
            message, descriptors, _flags, _address = socket.recv_fds(self._line, 64, 1, socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            message, descriptors = b"", []
        if message.startswith(b"P") and descriptors:
            self._pidfd = descriptors[0]
            _settle(self.started, True)
        elif message.startswith(b"E"):
            _settle(self.ended, int(message[1:]))
        else:
            self._loop.remove_reader(self._line)
            _settle(self.started, False)
            _settle(self.ended, None)
            _settle(self._gone, None)

    def go(self) -> None:
        """The tool may start. Before this word nothing of it has run; after it, it may have run."""
        self._going = True
        with contextlib.suppress(OSError):
            self._line.send(GO)

    def hang_up(self) -> None:
        """Ask for the end of everything. The supervisor does it; nothing else of us is needed."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)

    async def ends_within(self, seconds: float) -> bool:
        return await _within(self.ended, seconds)

    async def supervisor_gone(self) -> bool:
        """Whether the supervisor ended by itself soon: it removes the scratch directory last."""
        return self._going and await _within(self._gone, LAST_GRACE_SECONDS) and self.ended.result() is not None

    async def end(self) -> None:
        """Return when all of the tool's processes are dead: by the supervisor, or over its body."""
        self.hang_up()
        if not self._going:
            return
        await _within(self.ended, KILL_GRACE_SECONDS)
        if self.ended.done() and self.ended.result() is not None:
            return
        if self._pidfd is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        await _within(asyncio.gather(self._gone, self.stdout.closed, self.stderr.closed), LAST_GRACE_SECONDS)

    def release(self) -> None:
        self.sent()
        self._loop.remove_reader(self._line)
        self._line.close()
        for capture in self._captures:
            capture.finish()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


def _memory_file(content: bytes) -> int:
    """The job in memory: it needs no feeding, is on no disk, and is not in anybody's command line."""
    descriptor = os.memfd_create("holdfast-job", os.MFD_CLOEXEC)
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    return descriptor


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


async def _within(future: asyncio.Future[Any], seconds: float) -> bool:
    done, _pending = await asyncio.wait([future], timeout=seconds)
    return bool(done)
