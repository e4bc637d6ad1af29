"""A watchdog for the event loop of servers in tests: it reports every callback that stalls the loop, with its stack.

A callback stalls the loop when it uses more than `CPU_SECONDS` of the loop thread's own CPU time, or when it blocks the
loop for more than `WALL_SECONDS` by the clock. CPU time does not depend on how busy the machine is. The clock does, so
a long callback counts only if this process itself took the time: the sampling thread went on meanwhile (the callback
blocked in a system call), or the process used the CPU (another thread held the GIL). A process that the machine or a
SIGSTOP kept from running is not reported. Nor are garbage collections: they go over all objects of the process, and
which callback sets one off is chance.

`ServerProcess` and the kill test set `REPORT`, the file to report to. Start-up is exempt: measuring begins when the
file `REPORT` + ".armed" exists, which the starter creates when the process has answered for the first time. Only
`holdfast.testing` installs this; a production server never does.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

REPORT = "HOLDFAST_TEST_WATCHDOG"
CPU_SECONDS = 0.05
# Beside other test processes on a virtual machine, time that was given to another guest counts as CPU time. There the
# limit is so many times as large; alone it is not.
SLACK = "HOLDFAST_TEST_WATCHDOG_SLACK"
SLACK_IN_A_CROWD = "4"
WALL_SECONDS = 1.0
SAMPLE_SECONDS = 0.01
STARVED_SECONDS = 0.3  # if the sampling thread is late by this much, the process was kept from running
BUSY_SHARE = 0.6  # the share of the time during which the process must have used the CPU to be reported
MOST_REPORTS = 50


def slack() -> str:
    """What to set `SLACK` to for a process that is started now."""
    return SLACK_IN_A_CROWD if "PYTEST_XDIST_WORKER" in os.environ else "1"


class Running:
    """The callback that is running now."""

    __slots__ = ("began", "began_cpu", "began_process", "callback", "collecting", "longest_gap", "stack", "starved")

    def __init__(self, callback: Callable[..., Any], starved: float) -> None:
        self.callback = callback
        self.starved = starved  # `Watchdog._starved` when the callback began
        self.stack = ""
        self.longest_gap = 0.0  # between two samples; the stack right after it shows best where the time went
        self.collecting = 0.0  # CPU time of garbage collections, which the callback triggered by chance
        self.began = time.monotonic()
        self.began_process = time.process_time()
        self.began_cpu = time.thread_time()


class Watchdog:
    def __init__(self, report: Path) -> None:
        self._report = report
        self._cpu_seconds = CPU_SECONDS * float(os.environ.get(SLACK, "1"))
        self._armed_by = armed_by(report)
        self.armed = False
        self._running: Running | None = None
        self._loop_thread = 0
        self._reports = 0
        self._sampled = time.monotonic()  # when the sampling thread ran last
        # For how long in all the sampling thread was kept from running. It is counted whether or not a callback runs: a
        # SIGSTOP may also hit the loop's thread in the instants before and after, while it measures.
        self._starved = 0.0

    def start(self) -> None:
        threading.Thread(target=self._sample, name="watchdog", daemon=True).start()
        gc.callbacks.append(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        running = self._running
        if running is not None and threading.get_ident() == self._loop_thread:
            running.collecting += time.thread_time() if phase == "stop" else -time.thread_time()

    def run(self, callback: Callable[..., Any], *args: Any) -> None:
        """Run a callback of the loop and measure it."""
        if not self.armed or self._running is not None:
            callback(*args)
            return
        self._loop_thread = threading.get_ident()
        running = self._running = Running(callback, self._starved)
        try:
            callback(*args)
        finally:
            self._running = None
            self._judge(running)

    def _judge(self, running: Running) -> None:
        cpu = time.thread_time() - running.began_cpu - running.collecting
        wall = time.monotonic() - running.began
        if cpu <= self._cpu_seconds and wall <= WALL_SECONDS:
            return
        used = time.process_time() - running.began_process
        starved = self._starved - running.starved + self._overdue(time.monotonic())
        blocked = wall > WALL_SECONDS and (wall - starved > WALL_SECONDS or used > BUSY_SHARE * wall)
        if cpu > self._cpu_seconds or blocked:
            measured = f"{cpu * 1000:.0f} ms of CPU, {wall * 1000:.0f} ms by the clock"
            self._report_stall(running, f"{measured}, {running.collecting * 1000:.0f} ms of garbage collection")

    def _report_stall(self, running: Running, measured: str) -> None:
        self._reports += 1
        if self._reports > MOST_REPORTS:
            return
        stack = running.stack or "  (no sample was taken while it ran)\n"
        with suppress(OSError), self._report.open("a") as into:  # the kill test fills disks
            into.write(f"The event loop was stalled: {measured}, in {running.callback!r}\n{stack}\n")

    def _sample(self) -> None:
        """Take the stack of a callback that runs for long, and notice when this thread itself is kept from running."""
        while True:
            time.sleep(SAMPLE_SECONDS)
            now = time.monotonic()
            self._starved += self._overdue(now)
            running = self._running
            if running is not None:
                gap = now - max(self._sampled, running.began)
                if now - running.began > SAMPLE_SECONDS and gap >= running.longest_gap:
                    running.longest_gap = gap
                    frame = sys._current_frames().get(self._loop_thread)
                    running.stack = "".join(traceback.format_stack(frame)[-12:])
            elif not self.armed:
                self.armed = self._armed_by.exists()
            self._sampled = now

    def _overdue(self, now: float) -> float:
        """For how long the sampling thread has been kept from running since its last turn."""
        gap = now - self._sampled
        return gap if gap > STARVED_SECONDS else 0.0


def watched_loop(watchdog: Watchdog) -> uvloop.Loop:
    """A loop whose callbacks are measured: task steps, timers, watched descriptors, and protocols that receive data."""

    class Watched(uvloop.Loop):
        def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
            return super().call_soon(watchdog.run, callback, *args, context=context)

        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
            return super().call_soon_threadsafe(watchdog.run, callback, *args, context=context)

        def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
            return super().call_later(delay, watchdog.run, callback, *args, context=context)

        def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
            return super().call_at(when, watchdog.run, callback, *args, context=context)

        def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]
            super().add_reader(fd, watchdog.run, callback, *args)

        def add_writer(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]
            super().add_writer(fd, watchdog.run, callback, *args)

        # The loop calls protocols from C and not through the methods above, so they are wrapped.

        async def create_server(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
            return await super().create_server(lambda: watched_protocol(protocol_factory()), *args, **options)

        async def create_connection(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
            return await super().create_connection(lambda: watched_protocol(protocol_factory()), *args, **options)

    def watched_protocol(protocol: Any) -> Any:
        protocol.data_received = partial(watchdog.run, protocol.data_received)
        return protocol

    return Watched()


def install() -> None:
    """Install the watchdog in this process; call it before the command runs."""
    if path := os.environ.get(REPORT):
        watchdog = Watchdog(Path(path))
        watchdog.start()
        assert uvloop.run.__kwdefaults__ is not None
        uvloop.run.__kwdefaults__["loop_factory"] = lambda: watched_loop(watchdog)


def armed_by(report: Path) -> Path:
    return report.with_name(f"{report.name}.armed")


def stalls(report: Path) -> str:
    """The content of the report; empty if the loop was never stalled."""
    return report.read_text() if report.exists() else ""
