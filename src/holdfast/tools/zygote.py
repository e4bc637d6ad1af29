"""The zygote: one long-lived, single-threaded process that forks a cell for every tool call, ahead of need.

`forkserver` starts it as a fresh `python -I -S` with an empty environment, so it holds nothing of the server's memory,
variables or descriptors. It goes into its cage first, then imports what tools commonly use and warms the compiler; a
cell forked from it is spared all of that. It serves one tenant, one set of packages and one network policy.

The server asks for cells and gets, for each, its pidfd and its line. The job goes over that line, and the kill over the
pidfd; neither needs the zygote. What is left for it: to see cells end, to see that nothing of them is left, and to
watch, where asked to, how much memory and disk a call takes. End of the socket means that the server is gone: so is
everything here. So does a long silence: a server that stands still (SIGSTOP, a stuck loop) loses its runs to others,
and its tools must be dead before those ask what became of them.

    server ── {"make": 2, "urgent": false} ─────────────► zygote
    server ◄─ {"cell": 7} + pidfd + line ──────────────── zygote
    server ◄─ {"ended": 7, "status": 0, "limit": null} ── zygote

It never runs a tool's code, never reads a job, and never starts a thread. Standard library only.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.tools import cell, child, jail, linux, usage
from holdfast.tools.cage import UIDS_PER_ZYGOTE, Cage
from holdfast.tools.going_in import go_in, preload
from holdfast.tools.scratch import remove_scratch, removed_if_empty

USER_COUNT_SECONDS = 1.0
WATCH_SECONDS = 0.05
MESSAGE_BYTES = 4096


def main(arguments: list[str]) -> None:
    """`arguments`: the socket's descriptor, the server's pid, the cage, then the modules to import ahead of time."""
    server = socket.socket(fileno=int(arguments[0]))
    cage = Cage.read(arguments[2])
    if cage.tier == "A":  # elsewhere it has groups to kill when the server dies, and hears of it by the socket
        linux.die_with_parent(int(arguments[1]))
    try:
        listener = go_in(cage)
        preload(arguments[3:])
        child.warm_up()
    except Exception as error:
        _tell(server, {"failed": str(error) or repr(error)})
        return
    gc.collect()
    gc.freeze()
    _tell(server, {"ready": os.getpid()}, [listener.fileno()] if listener else [])
    if listener:
        listener.close()
    Zygote(server, cage).serve()
    os._exit(0)  # there is nothing to tidy up, and somebody waits


def _tell(server: socket.socket, what: dict[str, Any], descriptors: list[int] | None = None) -> None:
    with contextlib.suppress(ConnectionError):  # it has gone, which is seen when nothing more comes from it
        socket.send_fds(server, [json.dumps(what).encode()], descriptors or [])


# ---- serving --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Held:
    """A cell as the zygote holds it. `limit` is the one for which it was killed; `watch` is what to watch."""

    pid: int
    place: cell.Place
    mounts: int | None
    limit: str | None = None
    watch: dict[str, int] | None = None


class Zygote:
    def __init__(self, server: socket.socket, cage: Cage) -> None:
        self._server = server
        self._cage = cage
        self._pid = os.getpid()
        self._cells: dict[int, _Held] = {}  # by pidfd
        self._poll = select.poll()
        self._poll.register(server, select.POLLIN)
        self._threads_counted = (0, -USER_COUNT_SECONDS)
        self._heard_at = time.monotonic()
        self._namespaces = jail.CallNamespaces() if cage.tier == "A" else None
        self._walls = cell.walls_for(cage) if cage.tier == "A" else None

    def serve(self) -> None:
        try:
            while self._serve_once():
                pass
        finally:
            for held in list(self._cells.values()):
                self._kill(held)
            for pidfd in list(self._cells):
                self._wait_for_all(self._cells[pidfd])
            if self._cage.scratch:
                remove_scratch(self._cage.scratch)

    def _serve_once(self) -> bool:
        watching = any(held.watch for held in self._cells.values())
        ready = self._poll.poll(self._most_milliseconds(watching))
        asked = False
        for descriptor, _events in ready:
            if descriptor == self._server.fileno():
                asked = True
            else:
                self._bury(descriptor)
        if watching:
            self._look_at_usage()
        return self._obey() if asked else not self._deserted()

    def _most_milliseconds(self, watching: bool) -> float | None:
        """How long to wait for something to happen."""
        if watching:
            return WATCH_SECONDS * 1000
        return self._cage.silence_seconds * 250 if self._cage.silence_seconds else None

    def _deserted(self) -> bool:
        patience = self._cage.silence_seconds
        return bool(patience) and time.monotonic() - self._heard_at > patience

    def _obey(self) -> bool:
        """One wish of the server's; False when there will be no more."""
        message = b""
        with contextlib.suppress(ConnectionError):
            message = self._server.recv(MESSAGE_BYTES)
        if not message:
            return False
        self._heard_at = time.monotonic()
        wish = json.loads(message)
        for _ in range(wish.get("make", 0)):
            try:
                self._make(urgent=wish["urgent"])
            except OSError as error:
                with contextlib.suppress(OSError):
                    _tell(self._server, {"refused": str(error)})
        if "watch" in wish:
            for held in self._cells.values():
                if held.pid == wish["watch"]:
                    held.watch = wish["limits"]
        return True

    # ---- making ----

    def _make(self, *, urgent: bool) -> None:
        """A cell that a call is waiting for gets its job at once; a spare has time to warm up first."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            place = self._place()
            line = theirs.fileno()
            pid, mounts = self._fork(
                lambda: cell.live(self._cage, place, line, self._pid, self._walls, warm=not urgent)
            )
            pidfd = os.pidfd_open(pid)
            self._cells[pidfd] = _Held(pid, place, mounts)
            self._poll.register(pidfd, select.POLLIN)
            _tell(self._server, {"cell": pid}, [pidfd, ours.fileno()])

    def _fork(self, live: Callable[[], None]) -> tuple[int, int | None]:
        """The cell's pid, and in tier A what holds its mounts."""
        if self._namespaces:
            return self._namespaces.fork(live)
        pid = os.fork()
        if pid == 0:
            live()
        return pid, None

    def _place(self) -> cell.Place:
        if self._cage.tier == "A":
            return cell.Place(jail.SCRATCH)
        taken = {held.place.uid for held in self._cells.values()}
        first = self._cage.uid
        uid = next(one for one in range(first, first + UIDS_PER_ZYGOTE) if one not in taken) if first else 0
        scratch = f"{self._cage.scratch}/{time.monotonic_ns():x}"
        place = cell.Place(scratch, uid, 0 if uid else self._threads_of_user())
        os.mkdir(scratch, 0o711)
        for path in (place.work, place.temporary):
            os.mkdir(path, 0o700)
            if uid:
                os.chown(path, uid, uid)
        return place

    def _threads_of_user(self) -> int | None:
        """RLIMIT_NPROC counts everything of the user, so a tool gets its share on top of what runs already.

        The kernel exempts root, and reading /proc for every cell would cost more than the cell.
        """
        if os.getuid() == 0:
            return None
        count, counted_at = self._threads_counted
        if time.monotonic() - counted_at >= USER_COUNT_SECONDS:
            count = linux.threads_of_user(os.getuid())
            self._threads_counted = (count, time.monotonic())
        return count

    # ---- watching and ending ----

    def _look_at_usage(self) -> None:
        for held in self._cells.values():
            if held.watch and held.limit is None:
                held.limit = usage.exceeded(held.pid, held.place.scratch, held.watch, self._cage)
                if held.limit:
                    self._kill(held)

    def _kill(self, held: _Held) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(held.pid, 9)

    def _bury(self, pidfd: int) -> None:
        """A cell has ended. See that nothing of it is left, then tell how it ended."""
        self._poll.unregister(pidfd)
        held = self._cells[pidfd]
        status, used = self._wait_for_all(held)
        del self._cells[pidfd]
        os.close(pidfd)
        place = held.place
        left = self._cage.tier != "A" and not removed_if_empty(place.scratch, place.work, place.temporary)
        news = {
            "ended": held.pid,
            "status": status,
            "limit": held.limit,
            "cpu_seconds": used.ru_utime + used.ru_stime,
            "left": place.scratch if left else None,
        }
        with contextlib.suppress(OSError):
            _tell(self._server, news)
        if held.mounts is not None:
            os.close(held.mounts)

    def _wait_for_all(self, held: _Held) -> tuple[int, resource.struct_rusage]:
        """The cell's wait status and what it used.

        In tier A the first process of a pid namespace takes all others with it. Elsewhere they are one process
        group, which is killed as a whole while its dead leader still holds the number; orphans come to us.
        """
        if self._cage.tier != "A":
            linux.kill_group(held.pid)
        _pid, status, used = os.wait4(held.pid, 0)
        while self._cage.tier != "A":
            linux.kill_group(held.pid)
            try:
                os.waitpid(-held.pid, 0)
            except ChildProcessError:
                break
        return status, used
