"""Forks server processes for tests from one process that has all modules loaded, so that starting one is fast.

A forked process runs `holdfast serve` or `holdfast worker` from the start and can be killed like any other process.
Starting a new interpreter for each of thousands of servers would take most of the test time.

    child = factory.spawn({...environment}, ["serve", "--port", "8000"], log)
    child.kill()
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import IO

from holdfast.testing import watchdog
from holdfast.tools.inside import linux

# The commands, and the modules that they import later.
LOADED = (
    *("holdfast.cli.serve", "holdfast.cli.worker", "holdfast.bus.postgres", "alembic.command", "alembic.config"),
    *("sqlalchemy.dialects.sqlite.pysqlite", "sqlalchemy.dialects.postgresql.psycopg"),
)


class Child:
    """A forked process, with the methods of `subprocess.Popen`. The factory is its parent."""

    def __init__(self, pid: int, code: Path) -> None:
        self.pid = pid
        self._code = code
        try:
            self._pidfd: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._pidfd = None

    def send_signal(self, number: signal.Signals) -> None:
        if self._pidfd is not None:
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its exit code, which it writes to a file; without the file it was killed."""
        if self._pidfd is not None:
            if not select.select([self._pidfd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            os.close(self._pidfd)
            self._pidfd = None
        return int(self._code.read_text()) if self._code.exists() else -signal.SIGKILL


class ProcessFactory:
    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = Lock()

    def open(self) -> None:
        command = [sys.executable, "-m", "holdfast.testing.process_factory"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._pipe(self._process.stdout).readline()  # it prints a line when it is ready

    def spawn(self, environment: dict[str, str], arguments: list[str], log: Path) -> Child:
        if self._process is None:
            self.open()
        assert self._process is not None
        code = log.with_suffix(".code")
        code.unlink(missing_ok=True)
        order = {"environment": environment, "arguments": arguments, "log": str(log), "code": str(code)}
        into = self._pipe(self._process.stdin)
        with self._lock:
            into.write(json.dumps(order) + "\n")
            into.flush()
            return Child(int(self._pipe(self._process.stdout).readline()), code)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def _serve() -> None:
    """The factory process: reads one order per line, forks and prints the pid."""
    for name in LOADED:
        import_module(name)  # before the first fork
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped automatically
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while line := sys.stdin.readline():
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(order["environment"], order["arguments"], order["log"], order["code"])
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _become(environment: dict[str, str], arguments: list[str], log: str, code_path: str) -> None:
    """In the child: run the command as if it had been started with this environment and these arguments."""
    linux.die_with_parent()  # the factory ends when the process that opened it does
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    null, into = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(null, 0)
    os.dup2(into, 1)
    os.dup2(into, 2)
    code = 1
    try:
        watchdog.install()
        code = import_module("holdfast.cli").main(arguments)
        sys.stdout.flush()
    finally:
        # Renamed into place: a reader must not see the file before its content, should a kill come in between.
        unfinished = Path(code_path + ".new")
        unfinished.write_text(str(code))
        unfinished.rename(code_path)
        os._exit(code)


if __name__ == "__main__":
    _serve()
