"""Taking samples so that a busy machine disturbs both sides alike, and putting them into one number.

Every comparison is interleaved: a round takes one sample of each side, and the order turns round every time. A slow
second then falls on all of them, and the ratio of the medians stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Sample = Callable[[], Awaitable[float]]

WARM_UP_ROUNDS = 5
_SCHEDULER_CLOCK = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """What the command line asked for."""

    database: str = "sqlite"
    quick: bool = False

    def count(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual


async def interleaved(rounds: int, sides: Mapping[str, Sample]) -> dict[str, list[float]]:
    """Samples of every side, in seconds or whatever the sides return, the first rounds thrown away."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    order = list(sides)
    for number in range(-WARM_UP_ROUNDS, rounds):
        for name in order:
            sample = await sides[name]()
            if number >= 0:
                taken[name].append(sample)
        order.reverse()
    return taken


async def timed(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def until(condition: Callable[[], bool], *, seconds: float = 10.0, step_seconds: float = 0.001) -> None:
    """Wait for something that only polling can see."""
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(step_seconds)


def median_ms(samples: Sequence[float]) -> float:
    return statistics.median(samples) * 1000


def percentile(samples: Sequence[float], share: float) -> float:
    """The nearest rank: with 100 samples, p99 is the second worst."""
    ranked = sorted(samples)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process with all its threads, to the nanosecond; its children are not in it.

    The clock's number is made as clock_getcpuclockid(3) makes it; /proc/…/stat counts only hundredths of a second.
    """
    return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def processes_named(name: str) -> list[int]:
    """The processes of this name on the whole machine, in whatever namespace; those that are dead already are not."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            alive = entry.name.isdigit() and (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
            if alive and (entry / "comm").read_text().strip() == name:
                found.append(int(entry.name))
    return found


def load_said() -> str:
    """How busy the machine was, for whoever reads the table later."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f"load {load:.2f} on {cores} cores"
