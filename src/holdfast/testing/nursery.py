"""Where processes come from: one that has loaded everything and forks, so that a new server costs a fork and no import.

What it forks is `holdfast serve` or `holdfast worker` from its first line on, in a process of its own: killed like any
other. Starting the interpreter anew for each of thousands of servers would be most of the work.

    child = nursery.bear({...environment}, ["serve", "--port", "8000"], log)
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
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import IO

from holdfast.tools import linux

# The commands, and what they load on their way.
LOADED = (
    *("holdfast.cli.serve", "holdfast.cli.worker", "holdfast.bus.postgres", "alembic.command", "alembic.config"),
    *("sqlalchemy.dialects.sqlite.pysqlite", "sqlalchemy.dialects.postgresql.psycopg"),
)


class Child:
    """One that was borne, with what `subprocess.Popen` has for one's own."""

    def __init__(self, pid: int, code: Path) -> None:
        self.pid = pid
        self._code = code
        try:
            self._gone: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._gone = None

    def send_signal(self, number: signal.Signals) -> None:
        if self._gone is not None:
            signal.pidfd_send_signal(self._gone, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; one that could not write it down was killed."""
        if self._gone is not None:
            if not select.select([self._gone], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            os.close(self._gone)
            self._gone = None
        return int(self._code.read_text()) if self._code.exists() else -signal.SIGKILL


class Nursery:
    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._one_order = Lock()

    def open(self) -> None:
        command = [sys.executable, "-m", "holdfast.testing.nursery"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._pipe(self._process.stdout).readline()  # it says when it is ready

    def bear(self, environment: dict[str, str], arguments: list[str], log: Path) -> Child:
        if self._process is None:
            self.open()
        assert self._process is not None
        code = log.with_suffix(".code")
        code.unlink(missing_ok=True)
        order = {"environment": environment, "arguments": arguments, "log": str(log), "code": str(code)}
        into = self._pipe(self._process.stdin)
        with self._one_order:
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


def _serve_orders() -> None:
    """In the nursery itself: one line in, one child out."""
    for name in LOADED:
        import_module(name)  # before the first fork
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children: they vanish when they end
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while line := sys.stdin.readline():
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _be(order["environment"], order["arguments"], order["log"], order["code"])
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _be(environment: dict[str, str], arguments: list[str], log: str, code_path: str) -> None:
    """In the child: as if it had just been started with these."""
    linux.die_with_parent()  # with the nursery, which ends when whoever opened it does
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    nowhere, into = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(nowhere, 0)
    os.dup2(into, 1)
    os.dup2(into, 2)
    code = 1
    try:
        code = import_module("holdfast.cli").main(arguments)
        sys.stdout.flush()
    finally:
        Path(code_path).write_text(str(code))
        os._exit(code)


if __name__ == "__main__":
    _serve_orders()
