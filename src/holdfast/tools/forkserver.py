"""The server's end of the fork server: starts it, orders calls from it, starts it anew when it has died.

`ProcessToolbox` owns one. The fork server is exec'd as a fresh interpreter with an empty environment and its own
session; it is never a fork of this process, so nothing of ours is in its memory. `zygote` is the other end.

It never waits for a call and never reads a result: all of that happens on the call's own descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

EMPTY_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
CLOSE_SECONDS = 2.0
SEND_SECONDS = 5.0

# `-I` leaves out PYTHONPATH and the working directory, so the package's place is told and forgotten again.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from holdfast.tools import zygote; del sys.path[0]; "
    "zygote.main(sys.argv[2:])"
)
_SOURCE_ROOT = str(Path(__file__).resolve().parents[2])


class ForkServer:
    """One zygote process, on demand."""

    def __init__(self, python: str, preload: Sequence[str]) -> None:
        self._python = python
        self._preload = tuple(preload)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._sending = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def ensure_running(self) -> socket.socket:
        """The socket to a fork server that was alive a moment ago. OSError if it cannot be started."""
        if self._process and self._socket and self._process.poll() is None:
            return self._socket
        self.drop(self.pid or 0)
        if sys.platform != "linux":
            raise OSError("tools in processes need Linux (subreapers, pidfds)")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            self._process = self._exec(theirs)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket = ours
        return ours

    def _exec(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        command = [self._python, "-I", "-c", _BOOT, _SOURCE_ROOT, str(theirs.fileno()), *self._preload]
        return subprocess.Popen(
            command,
            env=EMPTY_ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )

    async def order(self, message: bytes, descriptors: Sequence[int]) -> int:
        """Ask for one call; gives the fork server's pid. When it raises OSError the order has not been taken."""
        async with self._sending:
            for _first_try in (True, False):
                line = self.ensure_running()
                pid = self.pid or 0
                try:
                    await _send(line, message, descriptors)
                    return pid
                except ConnectionError as error:
                    self.drop(pid)
                    refused = error
            raise refused

    def drop(self, pid: int) -> None:
        """Forget the fork server of this pid, if it is still the one in use. Calls in progress do not need it."""
        if self._process is None or self._process.pid != pid:
            return
        if self._socket:
            self._socket.close()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = self._socket = None

    async def close(self) -> None:
        """End it in its own time, so that it can bury its dead; kill it if that takes too long."""
        process = self._process
        if self._socket:
            self._socket.close()
            self._socket = None
        if process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, CLOSE_SECONDS)
            self.drop(process.pid)


async def _send(line: socket.socket, message: bytes, descriptors: Sequence[int]) -> None:
    while True:
        try:
            socket.send_fds(line, [message], list(descriptors))
            return
        except BlockingIOError:
            await _writable(line)


async def _writable(line: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        loop.remove_writer(line)
        if not ready.done():
            ready.set_result(None)

    loop.add_writer(line, wake)
    try:
        await asyncio.wait_for(ready, SEND_SECONDS)
    finally:
        loop.remove_writer(line)
