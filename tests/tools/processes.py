"""What the executor's tests share: a short way to run a source, and a look at which processes are alive.

Where the operating system gives no event (a process of somebody else's has died), `until` looks again and again up
to a deadline; nothing else waits by the clock.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.ports.toolbox import ToolJob, ToolLimits, ToolOutcome
from holdfast.tools.process import ProcessToolbox


def job(source: str, arguments: dict[str, Any] | None = None, **more: Any) -> ToolJob:
    """A job for the function `tool` of the source."""
    limits = ToolLimits(**more.pop("limits", {}))
    made = {"call_id": "call-1", "name": "tool", "idempotency_key": "key-1", **more}
    return ToolJob(source_code=source, arguments=arguments or {}, limits=limits, **made)


async def run(
    toolbox: ProcessToolbox, source: str, arguments: dict[str, Any] | None = None, **more: Any
) -> ToolOutcome:
    return await toolbox.run(job(source, arguments, **more))


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Look until it holds; fail at the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.002)


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def pids_in(directory: Path, count: int) -> list[int]:
    """The pids that a tool's processes have written as file names, once all of them have."""
    names = [int(name) for name in os.listdir(directory) if name.isdigit()]
    return names if len(names) >= count else []


def descriptors(pid: int | None = None) -> int:
    """How many descriptors a process has open; without a pid, this one."""
    return len(os.listdir(f"/proc/{pid or 'self'}/fd"))


def max_descriptor() -> int:
    return max(int(name) for name in os.listdir("/proc/self/fd"))


# Ten grandchildren, each in a session of its own and orphaned at once; each leaves its pid as a file's name.
ESCAPERS = """
import os, time
def tool(directory: str, then: str) -> str:
    for _ in range(10):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                open(f"{directory}/{os.getpid()}", "w").close()
                while True:
                    time.sleep(60)
            os._exit(0)
        os.wait()
    while len(os.listdir(directory)) < 10:
        time.sleep(0.001)
    if then == "wait":
        time.sleep(60)
    return "left them behind"
"""
