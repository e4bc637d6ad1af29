"""The server's hold on one cell: the line to it, the pidfd that kills it, and the news of its end.

`forkserver` makes one for each cell that its zygote has forked, `running` uses it for one call. There are two kinds of
news. *Dead* means that nothing of the call runs any more; that is what an answer waits for. In tier A the kernel says
so by the pidfd: the first process of a pid namespace is over only when all others in it are. But before it says so it
takes back the memory, which is two fifths of a short call. So a cell that has given its result is killed, and if it is
then seen to be alone in its namespace, there is nothing more to wait for. Elsewhere the zygote has to see to it, and
says so. *Ended* is the zygote's word on how the cell ended, and comes a little later; only a call without a result
needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from dataclasses import dataclass

from holdfast.tools import linux


@dataclass(frozen=True, slots=True)
class Ended:
    """How a cell ended. `limit` is the one for which the zygote killed it; `left` a scratch that is still there."""

    status: int
    limit: str | None = None
    cpu_seconds: float = 0.0
    left: str | None = None


class Cell:
    """A confined process that waits for its one job. `ended` gives None if its zygote was lost meanwhile."""

    def __init__(self, number: int, pidfd: int, line: int, *, takes_all_with_it: bool) -> None:
        self.number = number
        self.line = socket_of(line)
        self._pidfd = pidfd
        self._loop = asyncio.get_running_loop()
        self.dead = asyncio.Event()
        self.ended: asyncio.Future[Ended | None] = self._loop.create_future()
        self._watched = takes_all_with_it
        if takes_all_with_it:
            self._loop.add_reader(pidfd, self._died)

    def _died(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self.dead.set()

    def end_with_its_result(self) -> None:
        """Kill it; and if it has nobody beside it, it is as good as dead."""
        if self._watched and not self.dead.is_set():
            self.kill()
            if linux.is_alone(self._pidfd):
                self._died()

    def tell_end(self, ended: Ended | None) -> None:
        """What the zygote said, which has looked; None if there is no zygote to ask."""
        if not self._watched:
            self.dead.set()
        if not self.ended.done():
            self.ended.set_result(ended)

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def release(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
            self.line.close()


def socket_of(descriptor: int) -> socket.socket:
    made = socket.socket(fileno=descriptor)
    made.setblocking(False)
    return made
