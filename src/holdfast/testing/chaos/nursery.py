"""Where processes come from: one that has loaded everything and forks, so that a new server costs a fork and no import.

What it forks is `holdfast serve` or `holdfast worker` from its first line on, in a process of its own: killed like any
other. Starting the interpreter anew for each of ten thousand kills would be most of the work.

    nursery.bear({...environment}, ["serve", "--port", "8000"], log) -> pid
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import IO

from holdfast.tools import linux


class Nursery:
    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def open(self) -> None:
        command = [sys.executable, "-m", "holdfast.testing.chaos.nursery"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._pipe(self._process.stdout).readline()  # it says when it is ready

    def bear(self, environment: dict[str, str], arguments: list[str], log: Path) -> int:
        assert self._process is not None
        order = {"environment": environment, "arguments": arguments, "log": str(log)}
        into = self._pipe(self._process.stdin)
        into.write(json.dumps(order) + "\n")
        into.flush()
        return int(self._pipe(self._process.stdout).readline())

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
    for name in ("holdfast.cli.serve", "holdfast.cli.worker"):
        import_module(name)  # before the first fork
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children: they vanish when they end
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while line := sys.stdin.readline():
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _be(order["environment"], order["arguments"], order["log"])
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _be(environment: dict[str, str], arguments: list[str], log: str) -> None:
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
    finally:
        os._exit(code)


if __name__ == "__main__":
    _serve_orders()
