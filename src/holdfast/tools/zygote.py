"""The fork server: one long-lived, single-threaded process that forks a supervisor for every tool call.

`forkserver` starts it as a fresh `python -I` with an empty environment, so it holds nothing of the server's memory,
variables or descriptors. Its imports and its compiler are warm, which spares a call the start of an interpreter. And
it forks one call ahead: a *spare* supervisor with its tool process stands ready, so a call does not wait for forks.

One message on its socket asks for one call: a small JSON order and the call's five descriptors. Both go on to the
spare, which answers the server on the call's own line, and the next spare is forked. End of the socket means that the
server is gone, and so is the fork server. Running supervisors do not need it: each has its own line.

It never runs a tool's code, never reads a job, and never starts a thread. Standard library only.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import socket
import sys
import time
from typing import NamedTuple

from holdfast.tools import child, linux, supervisor

USER_COUNT_SECONDS = 1.0


def main(arguments: list[str]) -> None:
    """`arguments`: the socket's descriptor, then the modules to import ahead of time."""
    server = socket.socket(fileno=int(arguments[0]))
    for name in arguments[1:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    linux.adopt_orphans()
    child.warm_up()
    gc.collect()
    gc.freeze()
    _ForkServer(server).serve()


class _Spare(NamedTuple):
    """A supervisor that waits, and the socket over which it takes its one order."""

    pid: int
    orders: socket.socket


class _ForkServer:
    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._supervisors: dict[int, int] = {}  # pidfd -> pid
        self._poll = select.poll()
        self._poll.register(server, select.POLLIN)
        self._threads_counted = (0, -USER_COUNT_SECONDS)
        self._spare = self._fork_supervisor()

    def serve(self) -> None:
        while True:
            for descriptor, _events in self._poll.poll():
                if descriptor != self._server.fileno():
                    self._bury(descriptor)
                elif not self._pass_on_an_order():
                    return

    def _pass_on_an_order(self) -> bool:
        message, descriptors, _flags, _address = supervisor.receive_order(self._server)
        if not message:
            return False
        order = json.loads(message)
        order["thread_ceiling"] = self._thread_ceiling(order["limits"]["processes"])
        # If the spare was killed just now, the call's line ends with these descriptors and the server orders again.
        with self._spare.orders as spare, contextlib.suppress(OSError):
            socket.send_fds(spare, [json.dumps(order).encode()], descriptors)
        # All of them go before the next fork: a copy in the next spare would hold this call's line and pipes open.
        for descriptor in descriptors:
            os.close(descriptor)
        self._spare = self._fork_supervisor()
        return True

    def _fork_supervisor(self) -> _Spare:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._become_supervisor(theirs)
        theirs.close()
        pidfd = os.pidfd_open(pid)
        self._supervisors[pidfd] = pid
        self._poll.register(pidfd, select.POLLIN)
        return _Spare(pid, ours)

    def _become_supervisor(self, orders: socket.socket) -> None:
        code = 1
        try:
            self._server.close()
            for pidfd in self._supervisors:
                os.close(pidfd)
            supervisor.supervise(orders)
            code = 0
        except Exception as error:
            sys.stderr.write(f"holdfast: the supervisor of a tool call failed: {error!r}\n")
        finally:
            os._exit(code)

    def _bury(self, pidfd: int) -> None:
        """Reap a supervisor. If something killed it, its tool's processes are our children now: end them too."""
        self._poll.unregister(pidfd)
        pid = self._supervisors.pop(pidfd)
        status = os.waitpid(pid, 0)[1]
        os.close(pidfd)
        while status != 0 and (strays := self._strays()):
            linux.kill_and_reap(strays)
        if pid == self._spare.pid:
            self._spare.orders.close()
            self._spare = self._fork_supervisor()

    def _strays(self) -> list[int]:
        living = set(self._supervisors.values())
        return [pid for pid in linux.children_of(os.getpid()) if pid not in living]

    def _thread_ceiling(self, allowed: int) -> int | None:
        """RLIMIT_NPROC counts everything of the user, so a tool gets its share on top of what runs already.

        The kernel exempts root, and reading /proc on every call would cost more than the call.
        """
        if os.getuid() == 0:
            return None
        count, counted_at = self._threads_counted
        if time.monotonic() - counted_at >= USER_COUNT_SECONDS:
            count = linux.threads_of_user(os.getuid())
            self._threads_counted = (count, time.monotonic())
        ceiling = count + allowed
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        return ceiling if hard == resource.RLIM_INFINITY else min(ceiling, hard)
