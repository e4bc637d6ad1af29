"""Starts real `holdfast serve` and `holdfast worker` processes for tests, which can kill, freeze and restart them.

with ServerProcess(database_url, OPENAI_BASE_URL=model_server.openai_url) as server:
    client = Letta(base_url=server.url)
    server.kill()      # as kill -9 does
    server.start()     # the same database, the same port

A watchdog measures its event loop; a server that stalled it fails its test when it stops.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import ClassVar, Self

from holdfast.testing import watchdog
from holdfast.testing.process_factory import Child, ProcessFactory
from holdfast.testing.waiting import until

START_SECONDS = 90.0
STOP_SECONDS = 15.0
WATCHED_MAIN = (
    "from holdfast.testing import watchdog; watchdog.install(); from holdfast.cli import main; raise SystemExit(main())"
)


class ServerProcess:
    """`holdfast serve`. Processes with the same `data_dir` behave as on one machine. If `factory` is set, it forks the
    process."""

    command = "serve"
    factory: ClassVar[ProcessFactory | None] = None

    def __init__(self, database_url: str, data_dir: Path | None = None, /, **environment: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-server-")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = Path(self._folder.name) / "log"
        self.watchdog_report = Path(self._folder.name) / "stalls"
        self._environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": self._folder.name,
            "HOLDFAST_DATABASE": database_url,
            "HOLDFAST_DATA_DIR": str(data_dir or self._folder.name),
            "HOLDFAST_PORT": str(self.port),
            watchdog.REPORT: str(self.watchdog_report),
            watchdog.SLACK: watchdog.slack(),
            **environment,
        }
        self._process: subprocess.Popen[bytes] | Child | None = None
        self._began = 0  # where the current process's part of the log begins

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it responds."""
        watchdog.armed_by(self.watchdog_report).unlink(missing_ok=True)
        with self.log_path.open("ab") as log:
            self._began = log.tell()
            if self.factory is not None:
                self._process = self.factory.spawn(self._environment, [self.command], self.log_path)
            else:
                self._process = subprocess.Popen(self._argv(), env=self._environment, stdout=log, stderr=log)
        try:
            self._wait_until_it_answers(self._process)
        except BaseException:
            self.kill()  # a start that was given up must not leave a server behind
            raise
        watchdog.armed_by(self.watchdog_report).touch()

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes] | Child) -> None:
        with suppress(TimeoutError):
            until(lambda: process.poll() is not None or self._answers(), seconds=START_SECONDS)
            if process.poll() is None:
                return
        raise RuntimeError(f"The {self.command} did not start:\n{self.log_path.read_text()}")

    def _argv(self) -> list[str]:
        return [sys.executable, "-c", WATCHED_MAIN, self.command]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/v1/health", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Suspend it with SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> int:
        """Shut it down with SIGTERM, wait, and return its exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        stalled = watchdog.stalls(self.watchdog_report)
        self._folder.cleanup()
        if stalled and kind is None:
            raise AssertionError(stalled)


class WorkerProcess(ServerProcess):
    """`holdfast worker`."""

    command = "worker"

    def _answers(self) -> bool:
        return b"worker is ready" in self.log_path.read_bytes()[self._began :]


def free_port() -> int:
    """An unused port below the kernel's range for outgoing connections, since one of these could take it before the
    server does."""
    while True:
        port = SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
