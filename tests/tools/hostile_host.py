"""A stand-in for the server that runs hostile tools and then reports what happened to itself.

`test_attacks_on_the_server.py` starts it as root or as an ordinary user, with namespaces or without. It reads one JSON
object from stdin: the calls, run one after the other unless `at_once`, and what to set up for them. It writes one JSON
object: the tier, what the calls returned, and facts about this process and its files before and after.

In arguments of calls `$PORT` is a port of this process that never responds, `$PID` its pid, `$FOLDER` a folder of its
own, and `$SOCKET` a datagram socket in it. With `system_v`, `$SYSTEM_V_…` are the numbers of its shared memory, queue
and semaphores, and the report says which of them are left. `shared` is a folder that tools may write to.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from holdfast.ports.toolbox import ToolJob, ToolLimits
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

TICK_SECONDS = 0.01


async def _resolve(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]


def _facts(folder: Path) -> dict[str, Any]:
    kept = folder / "encryption.key"
    return {
        "limits": [resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU)],
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "scheduler": os.sched_getscheduler(0),
        "processors": sorted(os.sched_getaffinity(0)),
        "modes": [path.stat().st_mode for path in (folder, kept)],
        "times": kept.stat().st_mtime,
        "attributes": os.listxattr(kept),
        "kept": kept.read_text(),
    }


class SystemV:
    """Shared memory, a message queue with a message, and semaphores of this user."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.memory = self._libc.shmget(0, 4096, 0o1600)
        self.queue = self._libc.msgget(0, 0o1600)
        self.semaphores = self._libc.semget(0, 1, 0o1600)
        assert min(self.memory, self.queue, self.semaphores) >= 0, os.strerror(ctypes.get_errno())
        self._libc.msgsnd(self.queue, ctypes.create_string_buffer(b"\1\0\0\0\0\0\0\0mail"), 4, 0)

    def remove(self) -> list[str]:
        """Remove them. Which of them were still there, and as they were?"""
        text = ctypes.create_string_buffer(64)
        unread = self._libc.msgrcv(self.queue, text, 8, 0, 0o4000) == 4
        unchanged = self._libc.semctl(self.semaphores, 0, 12) == 0
        there = {
            "memory": self._libc.shmctl(self.memory, 0, None) == 0,
            "queue": self._libc.msgctl(self.queue, 0, None) == 0 and unread,
            "semaphores": self._libc.semctl(self.semaphores, 0, 0) == 0 and unchanged,
        }
        return [name for name, is_there in there.items() if is_there]


class LoopLag:
    """Measures the longest time for which the event loop was blocked."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def measure(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK_SECONDS)
            self.longest = max(self.longest, time.monotonic() - before - TICK_SECONDS)


async def host(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    (folder / "encryption.key").write_text("a key")
    scratch = folder / "scratch"
    scratch.mkdir(mode=0o711)
    shared = [Path(request["shared"])] if "shared" in request else []
    silent = socket.create_server(("127.0.0.1", 0))
    box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    box.bind(str(folder / "socket"))
    os.chmod(folder / "socket", 0o777)
    box.setblocking(False)
    substitutions = {
        "$PORT": silent.getsockname()[1],
        "$PID": os.getpid(),
        "$FOLDER": str(folder),
        "$SOCKET": str(folder / "socket"),
    }
    system_v = SystemV() if request.get("system_v") else None
    if system_v is not None:
        numbers = {"MEMORY": system_v.memory, "QUEUE": system_v.queue, "SEMAPHORES": system_v.semaphores}
        substitutions |= {f"$SYSTEM_V_{name}": number for name, number in numbers.items()}
    toolbox = ProcessToolbox(
        scratch_root=scratch, network=request.get("network", "none"), resolve=_resolve, writable=shared
    )

    def job(call: dict[str, Any]) -> ToolJob:
        arguments = {name: substitutions.get(value, value) for name, value in call.get("arguments", {}).items()}
        limits = ToolLimits(**call.get("limits", {}))
        packages = tuple(call.get("packages", ()))
        return ToolJob("call", "tool", call["source"], arguments, "key", limits=limits, packages=packages)

    found = await toolbox.isolation()
    before = _facts(folder)
    lag = LoopLag()
    measuring = asyncio.create_task(lag.measure())
    if request.get("at_once"):
        outcomes = await asyncio.gather(*(toolbox.run(job(call)) for call in request["calls"]))
    else:
        outcomes = [await toolbox.run(job(call)) for call in request["calls"]]
    measuring.cancel()
    left = [path.name for path in scratch.glob("*/*/*/*")]
    await toolbox.close()
    try:
        received = box.recv(100).decode()
    except BlockingIOError:
        received = ""
    return {
        "tier": found.tier,
        "why_not": dict(found.why_not),
        "outcomes": [[outcome.status, str(outcome.content)] for outcome in outcomes],
        "stood_still": lag.longest,
        "before": before,
        "after": _facts(folder),
        "received": received,
        "left": left,
        "system_v": system_v.remove() if system_v is not None else [],
        "left_after_close": os.listdir(scratch),
    }


def main() -> None:
    request = json.loads(sys.stdin.readline())
    with tempfile.TemporaryDirectory(prefix="holdfast-hostile-") as name:
        os.chmod(name, 0o711)
        sys.stdout.write(json.dumps(asyncio.run(host(request, Path(name)))))


if __name__ == "__main__":
    main()
