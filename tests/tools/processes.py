"""Helpers for the sandbox tests: run a source in a short way, and find out which processes are alive.

Where the operating system sends no event (an unrelated process has died), tests poll with `async_until`; nothing else
waits by the clock.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import Any

from holdfast.ports.toolbox import ToolJob, ToolLimits, ToolOutcome
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

END_SECONDS = 5.0  # within this time everything of an ended call is gone


def make_toolbox(**means: Any) -> ProcessToolbox:
    return ProcessToolbox(**means)


def job(source: str, arguments: dict[str, Any] | None = None, **more: Any) -> ToolJob:
    """A job for the function `tool` of the source."""
    limits = ToolLimits(**more.pop("limits", {}))
    made = {"call_id": "call-1", "name": "tool", "idempotency_key": "key-1", **more}
    return ToolJob(source_code=source, arguments=arguments or {}, limits=limits, **made)


async def run(
    toolbox: ProcessToolbox, source: str, arguments: dict[str, Any] | None = None, **more: Any
) -> ToolOutcome:
    return await toolbox.run(job(source, arguments, **more))


def processes_named(mark: str) -> list[int]:
    """The living processes with this name on the whole machine, whatever pid namespace they are in."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and Path(f"/proc/{entry}/comm").read_text().strip() == mark and alive(int(entry)):
                found.append(int(entry))
    return found


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def unique_process_name() -> str:
    """A process name that no other process has."""
    return f"hf{uuid.uuid4().hex[:10]}"


def descriptors(pid: int | None = None) -> int:
    """How many descriptors a process has open; without a pid, this one."""
    return len(os.listdir(f"/proc/{pid or 'self'}/fd"))


def max_descriptor() -> int:
    return max(int(name) for name in os.listdir("/proc/self/fd"))


# Ten grandchildren, each orphaned at once and, where allowed, in its own session; each takes the mark as its name.
ESCAPERS = """
import ctypes, os, time
def tool(mark: str, then: str) -> str:
    for _ in range(10):
        if os.fork() == 0:
            try:
                os.setsid()
            except PermissionError:
                pass
            if os.fork() == 0:
                ctypes.CDLL(None).prctl(15, mark.encode(), 0, 0, 0)
                while True:
                    time.sleep(60)
            os._exit(0)
        os.wait()
    print("up", flush=True)
    if then == "wait":
        time.sleep(60)
    return "left them behind"
"""
