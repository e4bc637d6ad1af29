"""Benchmark of the sandbox: the time of a tool call, the time to kill one, and resource leaks after thousands of calls.

It calls `ProcessToolbox.run` in this process, which is the whole path of a tool call except for the engine. The
baseline is a bare fork: a Python process with the same imports as a zygote forks a child that does nothing, and reaps
it. Samples are interleaved, so that a busy machine affects both.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.results import Bar, Row
from bench.sampling import Setting, interleaved, median_ms, percentile, processes_named, resident_bytes, timed
from holdfast.ports.toolbox import ToolJob
from holdfast.testing.waiting import async_until
from holdfast.tools.inside import linux
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

ROUNDS, QUICK_ROUNDS = 300, 60
KILLS, QUICK_KILLS = 100, 20
SOAK_CALLS, QUICK_SOAK_CALLS = 5000, 500
# A model's reply takes longer than this. By then the spare processes are forked again, so that affects no sample.
PAUSE_SECONDS = 0.04
WITH_SPARE, WITHOUT_SPARE, KILL = Bar("value", 3), Bar("value", 8), Bar("value", 50)
NOTHING = Bar("value", 0)

ADD = "def add(a: int, b: int) -> int:\n    return a + b\n"
ESCAPERS = """
import ctypes, os, time
def escape(mark: str) -> str:
    for _ in range(10):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                ctypes.CDLL(None).prctl(15, mark.encode(), 0, 0, 0)
                time.sleep(60)
            os._exit(0)
        os.wait()
    time.sleep(60)
"""
FLOOR = """
import asyncio, json, os, sys, time, pydantic
for line in sys.stdin:
    began = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    print(time.perf_counter() - began, flush=True)
"""


def _add() -> ToolJob:
    return ToolJob("call", "add", ADD, {"a": 1, "b": 2}, "key")


def _sample(toolbox: ProcessToolbox) -> Callable[[], Awaitable[float]]:
    async def take() -> float:
        await asyncio.sleep(PAUSE_SECONDS)
        return await timed(toolbox.run(_add()))

    return take


class _Floor:
    """A process that forks on request and reports how long it took."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, "-c", FLOOR], stdin=pipe, stdout=pipe, text=True)

    async def fork(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        await asyncio.sleep(PAUSE_SECONDS)
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


async def measure(setting: Setting) -> list[Row]:
    ready, bare, floor = ProcessToolbox(), ProcessToolbox(spares=0), _Floor()
    tier = (await ready.isolation()).tier
    sides = {"ready": _sample(ready), "bare": _sample(bare), "fork": floor.fork}
    try:
        taken = await interleaved(setting.count(ROUNDS, QUICK_ROUNDS), sides)
        # Only tier A lets a tool start sessions at all.
        kills = setting.count(KILLS, QUICK_KILLS) if tier == "A" else 0
        killed = [await _kill(ready, number) for number in range(kills)]
        leaks = await _soak(ready, setting.count(SOAK_CALLS, QUICK_SOAK_CALLS))
    finally:
        floor.close()
        await asyncio.gather(ready.close(), bare.close())
    forked = median_ms(taken["fork"])
    return [
        _call_row(f"call of a tool, spare ready (tier {tier})", taken["ready"], forked, WITH_SPARE),
        _call_row(f"call of a tool, no spare (tier {tier})", taken["bare"], forked, WITHOUT_SPARE),
        *([_kill_row(killed)] if killed else []),
        *leaks,
    ]


def _kill_row(samples: list[float]) -> Row:
    value = percentile(samples, 0.99) * 1000
    note = f"median {median_ms(samples):.1f} ms, worst {max(samples) * 1000:.1f} ms of {len(samples)}"
    return Row(measure="kill with ten grandchildren, p99", value=value, unit="ms", bar=KILL, note=note)


def _call_row(measure: str, samples: list[float], floor: float, bar: Bar) -> Row:
    note = (
        f"p10 {percentile(samples, 0.1) * 1000:.1f}, p99 {percentile(samples, 0.99) * 1000:.1f} ms; floor: a bare fork"
    )
    return Row(measure=measure, value=median_ms(samples), unit="ms", floor=floor, bar=bar, note=note)


async def _kill(toolbox: ProcessToolbox, number: int) -> float:
    """The time from the cancel until the call has returned; after that none of its processes is alive."""
    mark = f"esc-{os.getpid() % 1000}-{number}"
    call = asyncio.create_task(toolbox.run(ToolJob("call", "escape", ESCAPERS, {"mark": mark}, "key")))
    await async_until(lambda: len(processes_named(mark)) == 10, poll_seconds=0.001)
    began = time.perf_counter()
    call.cancel()
    await asyncio.wait([call])
    taken = time.perf_counter() - began
    assert processes_named(mark) == []
    return taken


async def _soak(toolbox: ProcessToolbox, calls: int) -> list[Row]:
    async def some(count: int) -> None:
        for _ in range(count // 4):
            await asyncio.gather(*(toolbox.run(_add()) for _ in range(4)))
        await asyncio.sleep(0.5)  # until the last spare processes are forked

    await some(100)
    before = _held(toolbox)
    await some(calls)
    after = _held(toolbox)
    said = ", ".join(f"{name} {before[name]} to {after[name]}" for name in before)
    grown = sum(max(0, after[name] - before[name]) for name in ("descriptors", "zygote's", "processes", "mounts"))
    resident = (after["KB"] - before["KB"]) / 1024
    return [
        Row(measure=f"left behind by {calls} calls", value=grown, unit="", bar=NOTHING, note=said),
        Row(measure=f"memory after {calls} calls", value=resident, unit="MB"),
    ]


def _held(toolbox: ProcessToolbox) -> dict[str, int]:
    """The open files, processes and memory of this process and its zygote."""
    server = toolbox.fork_servers[0]
    zygote = linux.children_of(server.pid)[0] if server.confinement.tier == "A" else server.pid
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "zygote's": len(os.listdir(f"/proc/{zygote}/fd")),
        "processes": len(linux.children_of(zygote)),
        "mounts": len(Path(f"/proc/{zygote}/mounts").read_text().splitlines()),
        "KB": (resident_bytes(os.getpid()) + resident_bytes(zygote)) // 1024,
    }
