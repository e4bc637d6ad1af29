"""The server's end of one zygote: starts it, takes cells from it, hears how they end.

`warm` keeps one for each tenant, set of packages and network policy. The zygote is exec'd as a fresh interpreter with
an empty environment and its own session; it is never a fork of this process, so nothing of ours is in its memory.
`zygote` is the other end and tells the messages.

A few cells stand ready as *spares*, so a call usually finds one and need not wait for a fork. They are refilled a
little after a call has ended, not while it runs: a fork then would take the processor from those who want an answer.

It never sends a job and never reads a result: `running` does, on the cell's own line.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.tools import linux
from holdfast.tools.cage import Cage
from holdfast.tools.cells import Cell, Ended, socket_of
from holdfast.tools.scratch import remove_scratch
from holdfast.tools.zygote import MESSAGE_BYTES

EMPTY_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
CLOSE_SECONDS = 2.0
SPARES = 2

# `-I` and `-S` leave out the environment, the working directory and site-packages with its .pth files, so the place of
# our own package is told and forgotten again.
BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from holdfast.tools import {module}; del sys.path[0]; "
    "{module}.main(sys.argv[2:])"
)
SOURCE_ROOT = str(Path(__file__).resolve().parents[2])


class ForkServer:
    """One zygote process. When it has died it stays dead; its owner makes another."""

    def __init__(
        self,
        python: str,
        cage: Cage,
        preload: Sequence[str],
        on_listener: Callable[[socket.socket], None] | None = None,
    ) -> None:
        """OSError if it cannot be started. `on_listener` gets the socket that a bounded network's proxy serves."""
        if sys.platform != "linux":
            raise OSError("tools need Linux (pidfds, process groups)")
        self.cage = cage
        self._on_listener = on_listener
        self._loop = asyncio.get_running_loop()
        self._spares: deque[Cell] = deque()
        self._waiting: deque[asyncio.Future[Cell]] = deque()
        self._asked_for = 0
        self._cells: dict[int, Cell] = {}
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        self.alive = True
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        with theirs:
            try:
                if cage.scratch:
                    os.mkdir(cage.scratch, 0o711)
                self._process = self._exec(python, theirs, preload)
            except OSError:
                self._socket.close()
                raise
        self._loop.add_reader(self._socket, self._heard)
        self._say_here()

    def _say_here(self) -> None:
        """The zygote takes a long silence of ours for death; so speak, for as long as we move at all."""
        if self.alive and self.cage.silence_seconds:
            self._send({"here": True})
            self._loop.call_later(self.cage.silence_seconds / 4, self._say_here)

    def _exec(self, python: str, theirs: socket.socket, preload: Sequence[str]) -> subprocess.Popen[bytes]:
        boot = BOOT.format(module="zygote")
        told = [SOURCE_ROOT, str(theirs.fileno()), str(os.getpid()), self.cage.text(), *preload]
        return subprocess.Popen(
            [python, "-I", "-S", "-c", boot, *told],
            env=EMPTY_ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    # ---- cells ----

    @property
    def spares(self) -> int:
        return len(self._spares)

    async def cell(self) -> Cell:
        """A cell that was alive a moment ago. OSError if there is none to be had."""
        await asyncio.shield(self.ready)
        if not self.alive:
            raise OSError("the fork server has ended")
        if self._spares:
            return self._spares.popleft()
        wish: asyncio.Future[Cell] = self._loop.create_future()
        self._waiting.append(wish)
        self._ask(len(self._waiting) - self._asked_for, urgent=True)
        try:
            return await asyncio.shield(wish)
        except asyncio.CancelledError:
            if wish.done() and not wish.exception():
                self._spares.append(wish.result())
            wish.cancel()
            raise

    def refill(self, spares: int) -> None:
        """Have as many spares made for the calls to come."""
        self._ask(spares - len(self._spares) - self._asked_for)

    def watch(self, cell: Cell, memory_bytes: int) -> None:
        """From now on look at what this cell uses, and end it over its limits."""
        self._send({"watch": cell.number, "limits": {"memory_bytes": memory_bytes}})

    def _ask(self, count: int, *, urgent: bool = False) -> None:
        if count > 0 and self._send({"make": count, "urgent": urgent}):
            self._asked_for += count

    def _send(self, wish: dict[str, Any]) -> bool:
        try:
            self._socket.send(json.dumps(wish).encode())
        except OSError:
            return False
        return True

    # ---- what the zygote tells ----

    def _heard(self) -> None:
        try:
            message, descriptors, _flags, _address = socket.recv_fds(
                self._socket, MESSAGE_BYTES, 2, socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            message, descriptors = b"", []
        if not message:
            self._lost(OSError("the fork server ended"))
            return
        told = json.loads(message)
        if "cell" in told and len(descriptors) == len(("pidfd", "line")):
            self._cell_made(Cell(told["cell"], *descriptors, takes_all_with_it=self.cage.tier == "A"))
        elif "cell" in told:  # the kernel had to drop some; without its line the cell ends by itself
            for descriptor in descriptors:
                os.close(descriptor)
            self._cell_refused(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        elif "ended" in told:
            self._cell_ended(told.pop("ended"), Ended(**told))
        elif "refused" in told:
            self._cell_refused(OSError(told["refused"]))
        elif "ready" in told:
            self._is_ready(descriptors)
        elif "failed" in told:
            self._lost(OSError(told["failed"]))

    def _is_ready(self, descriptors: Sequence[int]) -> None:
        for descriptor in descriptors:
            listener = socket_of(descriptor)
            if self._on_listener:
                self._on_listener(listener)
            else:
                listener.close()
        if not self.ready.done():
            self.ready.set_result(None)

    def _cell_made(self, cell: Cell) -> None:
        self._asked_for -= 1
        self._cells[cell.number] = cell
        while self._waiting:
            wish = self._waiting.popleft()
            if not wish.done():
                wish.set_result(cell)
                return
        self._spares.append(cell)

    def _cell_refused(self, reason: OSError) -> None:
        self._asked_for -= 1
        if self._waiting:
            wish = self._waiting.popleft()
            if not wish.done():
                wish.set_exception(reason)

    def _cell_ended(self, number: int, ended: Ended) -> None:
        cell = self._cells.pop(number, None)
        if cell is None:
            return
        if cell in self._spares:  # killed while it waited; the next call must not get it
            self._spares.remove(cell)
            cell.release()
        cell.tell_end(ended)

    def _lost(self, reason: OSError) -> None:
        """The zygote is gone or useless: whoever waits for it is told, and what it may have left is killed.

        It is not killed itself. The closed socket ends it, and then its stub reaps it; killed, the stub would leave a
        zombie to the machine's first process, which in a container may be this very server.
        """
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._socket)
        self._socket.close()
        if not self.ready.done():
            self.ready.set_exception(reason)
        for wish in self._waiting:
            if not wish.done():
                wish.set_exception(reason)
        for cell in list(self._cells.values()):
            if self.cage.tier != "A":
                linux.kill_group(cell.number)
            cell.kill()
            cell.tell_end(None)
        while self._spares:
            self._spares.popleft().release()
        self._cells.clear()

    # ---- the end ----

    async def close(self) -> None:
        """End it in its own time, so that it can bury its dead; kill it if that takes too long."""
        self._lost(OSError("the fork server is closed"))
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, CLOSE_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        if self.cage.scratch:
            await asyncio.to_thread(remove_scratch, self.cage.scratch)
