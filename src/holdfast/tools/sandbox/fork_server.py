"""The server's connection to one zygote: it starts the zygote, gets cells from it, and receives reports of their exits.

`zygote_pool` keeps one for each tenant, set of packages and set of preloaded modules. The zygote is started by exec as
a fresh interpreter with an empty environment and its own session; it is never a fork of this process, so it contains
nothing of the server's memory. `inside.zygote` is the other end and documents the messages.

Messages from the zygote are validated like any other input (`parse_message`): a message can only name cells of that
zygote, and never a path or a process that the server would then act on.

A few cells are kept ready as *spares*, so a call usually need not wait for a fork. They are refilled a little after a
call has ended, not while it runs, because a fork would take processor time from calls in progress.

It never sends a job and never reads a result: `tool_process` does, on the cell's own control socket and pipes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.tools.inside import linux
from holdfast.tools.inside.confinement import Confinement
from holdfast.tools.inside.scratch import LockedFolder
from holdfast.tools.inside.zygote import MESSAGE_BYTES
from holdfast.tools.sandbox.cell_handle import CellHandle, Ended, nonblocking_socket

EMPTY_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
CLOSE_SECONDS = 2.0
SPARES = 2

# `-I` and `-S` ignore the environment, the working directory and site-packages with its .pth files, so the path of our
# own package is put on sys.path for one import and removed again.
BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv[1]); from holdfast.tools.inside import {module}; del sys.path[0]; "
    "{module}.main(sys.argv[2:])"
)
SOURCE_ROOT = str(Path(__file__).resolve().parents[3])


class ForkServer:
    """One zygote process. It is not restarted when it has ended; the pool starts another."""

    def __init__(
        self,
        python: str,
        confinement: Confinement,
        preload: Sequence[str],
        on_listener: Callable[[socket.socket], None] | None = None,
    ) -> None:
        """OSError if it cannot be started. `on_listener` gets the listening socket of the proxy, in tier A."""
        if sys.platform != "linux":
            raise OSError("tools need Linux (pidfds, process groups)")
        self.confinement = confinement
        self._on_listener = on_listener
        self._loop = asyncio.get_running_loop()
        self._spares: deque[CellHandle] = deque()
        self._waiting: deque[asyncio.Future[CellHandle]] = deque()
        self._requested = 0
        self._cells: dict[int, CellHandle] = {}
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        self.alive = True
        self._socket, zygote_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        self._locked_folder: LockedFolder | None = None
        with zygote_end:
            try:
                self._locked_folder = LockedFolder(confinement.scratch) if confinement.scratch else None
                self._process = self._exec(python, zygote_end)
                first = {"confinement": confinement.to_json(), "server": os.getpid(), "preload": list(preload)}
                self._socket.send(json.dumps(first).encode())
            except OSError:
                self._socket.close()
                if self._locked_folder:
                    self._locked_folder.remove()
                raise
        self._loop.add_reader(self._socket, self._on_message)
        self._send_heartbeat()

    def _send_heartbeat(self) -> None:
        """Send a message regularly: after `silence_seconds` without one the zygote takes this process for dead."""
        if self.alive and self.confinement.silence_seconds:
            self._send({"here": True})
            self._loop.call_later(self.confinement.silence_seconds / 4, self._send_heartbeat)

    def _exec(self, python: str, zygote_end: socket.socket) -> subprocess.Popen[bytes]:
        boot = BOOTSTRAP.format(module="zygote")
        return subprocess.Popen(
            [python, "-I", "-S", "-c", boot, SOURCE_ROOT, str(zygote_end.fileno())],
            env=EMPTY_ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(zygote_end.fileno(),),
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    # ---- cells ----

    @property
    def spares(self) -> int:
        return len(self._spares)

    async def cell(self) -> CellHandle:
        """A cell that was alive a moment ago. OSError if there is none."""
        await asyncio.shield(self.ready)
        if not self.alive:
            raise OSError("the fork server has ended")
        if self._spares:
            return self._spares.popleft()
        waiter: asyncio.Future[CellHandle] = self._loop.create_future()
        self._waiting.append(waiter)
        self._request_cells(len(self._waiting) - self._requested, urgent=True)
        try:
            return await asyncio.shield(waiter)
        except asyncio.CancelledError:
            if waiter.done() and not waiter.exception():
                self._spares.append(waiter.result())
            waiter.cancel()
            raise

    def refill(self, spares: int) -> None:
        """Request cells until there are this many spares."""
        self._request_cells(spares - len(self._spares) - self._requested)

    def watch(self, cell: CellHandle, memory_bytes: int) -> None:
        """Have the zygote sample this cell's usage from now on, and kill it if it exceeds its limits."""
        self._send({"watch": cell.number, "limits": {"memory_bytes": memory_bytes}})

    def _request_cells(self, count: int, *, urgent: bool = False) -> None:
        if count > 0 and self._send({"make": count, "urgent": urgent}):
            self._requested += count

    def _send(self, message: dict[str, Any]) -> bool:
        try:
            self._socket.send(json.dumps(message).encode())
        except OSError:
            return False
        return True

    # ---- messages from the zygote ----

    def _on_message(self) -> None:
        try:
            message, descriptors, _flags, _address = socket.recv_fds(
                self._socket, MESSAGE_BYTES, 2, socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            message, descriptors = b"", []
        if not message:
            self._shut_down(OSError("the fork server ended"))
            return
        match parse_message(message):
            case CellMade() as made:
                self._on_cell_made(made, descriptors)
            case CellEnded(number, ended):
                self._on_cell_ended(number, ended)
            case Refused(reason):
                self._on_cell_refused(OSError(reason))
            case Ready():
                self._on_ready(descriptors)
            case Failed(reason):
                self._shut_down(OSError(reason))
            case None:
                self._shut_down(OSError("the fork server sent an invalid message"))

    def _on_cell_made(self, made: CellMade, descriptors: Sequence[int]) -> None:
        complete = len(descriptors) == len(("pidfd", "control socket"))
        if complete and self._belongs_to_zygote(made, descriptors[0]):
            scratch = f"{self.confinement.scratch}/{made.scratch}" if self.confinement.scratch else None
            confined = self.confinement.tier == "A"
            self._add_cell(CellHandle(made.number, *descriptors, scratch=scratch, owns_pid_namespace=confined))
            return
        for descriptor in descriptors:  # a cell exits by itself when its control socket is closed
            os.close(descriptor)
        if complete:
            self._shut_down(OSError("the fork server named a process that is none of its cells"))
        else:  # the kernel dropped descriptors, because this process has too many open
            self._on_cell_refused(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))

    def _belongs_to_zygote(self, made: CellMade, pidfd: int) -> bool:
        """Outside tier A the server kills a process group by the cell's number, so it must be the pid of the given
        pidfd.
        """
        if self.confinement.tier == "A":
            return made.number not in self._cells
        try:
            return bool(made.scratch) and made.number not in self._cells and linux.pid_of(pidfd) == made.number
        except OSError:
            return False

    def _on_ready(self, descriptors: Sequence[int]) -> None:
        for descriptor in descriptors:
            if self._on_listener and not self.ready.done():
                self._on_listener(nonblocking_socket(descriptor))
            else:
                os.close(descriptor)
        if not self.ready.done():
            self.ready.set_result(None)

    def _add_cell(self, cell: CellHandle) -> None:
        self._requested -= 1
        self._cells[cell.number] = cell
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(cell)
                return
        self._spares.append(cell)

    def _on_cell_refused(self, reason: OSError) -> None:
        self._requested -= 1
        if self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(reason)

    def _on_cell_ended(self, number: int, ended: Ended) -> None:
        cell = self._cells.pop(number, None)
        if cell is None:
            return
        if cell in self._spares:  # it died as a spare, and no call may get it
            self._spares.remove(cell)
            cell.release()
        cell.set_ended(ended)

    def _shut_down(self, reason: OSError) -> None:
        """The zygote is gone or useless: fail everything that waits for it, and kill the cells that it may have left.

        The zygote process itself is not killed here. The closed socket ends it, and its stub reaps it. If the stub were
        killed, the zygote would be left as a zombie to the machine's init process, which in a container may be this
        server.
        """
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._socket)
        self._socket.close()
        if not self.ready.done():
            self.ready.set_exception(reason)
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(reason)
        for cell in list(self._cells.values()):
            if self.confinement.tier != "A":
                linux.kill_group(cell.number)
            cell.kill()
            cell.set_ended(None)
        while self._spares:
            self._spares.popleft().release()
        self._cells.clear()

    # ---- closing ----

    async def close(self) -> None:
        """Let the zygote exit by itself, so that it can reap its cells; kill it if that takes too long."""
        self._shut_down(OSError("the fork server is closed"))
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, CLOSE_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        if self._locked_folder:
            folder, self._locked_folder = self._locked_folder, None
            await asyncio.to_thread(folder.remove)


# ---- validated messages ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CellMade:
    number: int
    scratch: str  # the name of its folder in the zygote's folder; empty if it has none on disk


@dataclass(frozen=True, slots=True)
class CellEnded:
    number: int
    ended: Ended


@dataclass(frozen=True, slots=True)
class Refused:
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    reason: str


@dataclass(frozen=True, slots=True)
class Ready:
    pass


Message = CellMade | CellEnded | Refused | Failed | Ready
_SCRATCH_NAME = re.compile("[0-9a-f]{1,32}")
_LIMITS = (None, "memory", "disk", "unmeasurable")


def parse_message(message: bytes) -> Message | None:
    """The message as a validated value; None if it is not a message that a zygote sends."""
    try:
        fields = json.loads(message)
    except (ValueError, RecursionError):
        return None
    match fields:
        case {"cell": int(number), "scratch": str(scratch)} if number > 1 and _SCRATCH_NAME.fullmatch(scratch):
            return CellMade(number, scratch)
        case {"cell": int(number), "scratch": None} if number > 1:
            return CellMade(number, "")
        case {"ended": int(number), "status": int(status), "limit": limit, "cpu_seconds": int() | float() as seconds}:
            return CellEnded(number, Ended(status, limit, float(seconds))) if limit in _LIMITS else None
        case {"refused": str(reason)}:
            return Refused(reason)
        case {"failed": str(reason)}:
            return Failed(reason)
        case {"ready": int()}:
            return Ready()
        case _:
            return None
