"""Takes interleaved samples, so that a busy machine affects all sides alike, and computes medians and percentiles.

A round takes one sample of each side, and the order is reversed every time. A slow second then affects all sides, and
the ratio of the medians stays the same.
"""

from __future__ import annotations

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
    """The options of the command line."""

    database: str = "sqlite"
    quick: bool = False
    base: str | None = None  # the path of a checkout to compare with

    def count(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual


async def interleaved(rounds: int, sides: Mapping[str, Sample]) -> dict[str, list[float]]:
    """The samples of every side, in the unit that the sides return, without the warm-up rounds."""
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


def median_ms(samples: Sequence[float]) -> float:
    return statistics.median(samples) * 1000


def percentile(samples: Sequence[float], share: float) -> float:
    """The nearest rank: with 100 samples, p99 is the second worst."""
    ranked = sorted(samples)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process with all its threads, in nanosecond resolution, without its children.

    The clock's id is computed as clock_getcpuclockid(3) does; /proc/…/stat counts only hundredths of a second.
    """
    return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def processes_named(name: str) -> list[int]:
    """The live processes with this name on the whole machine, in any namespace."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            alive = entry.name.isdigit() and (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
            if alive and (entry / "comm").read_text().strip() == name:
                found.append(int(entry.name))
    return found


def load_said() -> str:
    """A text about the machine's load, for the table."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f"load {load:.2f} on {cores} cores"
