"""The server's handle on one cell: its control socket, the pidfd that kills it, and the events of its end.

`fork_server` makes one for each cell that its zygote has forked, `tool_process` uses it for one call. There are two
events:

- *dead*: no process of the call runs any more. A result is returned only after this. In tier A the kernel reports it
  by the pidfd, because pid 1 of a pid namespace ends only after all others in it. But the kernel first frees the
  memory, which is two fifths of a short call. So a cell that has written its result is killed, and if it is then alone
  in its namespace, the server does not wait any longer. In the other tiers the zygote checks and reports it.
- *ended*: the zygote's report of how the cell ended. It comes a little later; only a call without a result needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from dataclasses import dataclass

from holdfast.tools.inside import linux


@dataclass(frozen=True, slots=True)
class Ended:
    """How a cell ended. `limit` is the limit for which the zygote killed it; `cpu_seconds` is the CPU time of its first
    process, as the kernel counts it for the CPU limit."""

    status: int
    limit: str | None = None
    cpu_seconds: float = 0.0


class CellHandle:
    """A confined process that waits for its one job.

    `number` is its pid as the zygote sees it. `ended` gives None if the zygote was lost. `scratch` is its folder, if
    that is on disk.
    """

    def __init__(
        self, number: int, pidfd: int, control_fd: int, *, scratch: str | None, owns_pid_namespace: bool
    ) -> None:
        self.number = number
        self.scratch = scratch
        self.control = nonblocking_socket(control_fd)
        self._pidfd = pidfd
        self._loop = asyncio.get_running_loop()
        self.dead = asyncio.Event()
        self.ended: asyncio.Future[Ended | None] = self._loop.create_future()
        self._owns_pid_namespace = owns_pid_namespace
        if owns_pid_namespace:
            self._loop.add_reader(pidfd, self._on_exit)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self.dead.set()

    def kill_after_result(self) -> None:
        """Kill it; if it then has neither children nor other threads, it counts as dead."""
        if self._owns_pid_namespace and not self.dead.is_set():
            self.kill()
            if linux.is_alone(self._pidfd):
                self._on_exit()

    @property
    def leftover_scratch(self) -> str | None:
        """The scratch folder if the tool left files in it; the zygote removes an empty one. Valid after the end."""
        return self.scratch if self.scratch and os.path.lexists(self.scratch) else None

    def set_ended(self, ended: Ended | None) -> None:
        """Record the zygote's report; None if the zygote was lost."""
        if not self._owns_pid_namespace:
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
            self.control.close()


def nonblocking_socket(descriptor: int) -> socket.socket:
    made = socket.socket(fileno=descriptor)
    made.setblocking(False)
    return made
