"""A handful of the sandbox's attacks (tests/tools/test_attacks_*) on servers that are not root.

Where pytest runs as root, tools run as users of their own in tier B. The server of an ordinary user cannot do that: its
tools run as the same user, and only namespaces or landlock separate them from it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import denied
from denied import SOMEBODY
from holdfast.testing.waiting import until
from server_fixture import StartedAnew
from tools.processes import END_SECONDS, processes_named, unique_process_name

ATTACKS = '''
def attack(folder: str, pid: int, mark: str) -> dict:
    """Try what a tool must not be able to do.

    Args:
        folder: The server's.
        pid: The server's.
        mark: The name of what is left behind.
    """
    import ctypes, os, signal

    def read(path):
        with open(path, "rb") as file:
            return file.read(20)

    def leave_a_mark():
        with open(folder + "/mark", "w") as file:
            file.write("x")

    def trace():
        if ctypes.CDLL(None, use_errno=True).ptrace(16, pid, 0, 0) != 0:
            raise PermissionError

    tries = {
        "database": lambda: read(folder + "/holdfast.db"),
        "folder": lambda: os.listdir(folder),
        "write": leave_a_mark,
        "remove": lambda: os.unlink(folder + "/holdfast.db"),
        "environment": lambda: read(f"/proc/{pid}/environ"),
        "memory": lambda: open(f"/proc/{pid}/mem", "r+b"),
        "trace": trace,
        "signal": lambda: os.kill(pid, signal.SIGTERM),
        "root": lambda: os.setuid(0),
    }
    done = []
    for name, attempt in tries.items():
        try:
            attempt()
            done.append(name)
        except OSError:
            pass
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, mark.encode(), 0, 0, 0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while True:
            signal.pause()
    return {"done": done, "uid": os.getuid()}
'''


class ServerOfSomebody(StartedAnew):
    refused = ""

    def _argv(self) -> list[str]:
        code = "from holdfast.cli import main; raise SystemExit(main())"
        return denied.argv(code, self.refused, SOMEBODY, self.command)


class ServerOfSomebodyWithoutNamespaces(ServerOfSomebody):
    refused = "unshare"


@pytest.fixture(params=[ServerOfSomebody, ServerOfSomebodyWithoutNamespaces])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[StartedAnew, Path]]:
    with tempfile.TemporaryDirectory(prefix="holdfast-somebody-") as name:
        if os.getuid() == 0:
            os.chown(name, SOMEBODY, SOMEBODY)
        with request.param(f"sqlite:///{name}/holdfast.db", Path(name), **denied.environment()) as server:
            yield server, Path(name)


def test_files_and_processes_are_out_of_reach_though_the_user_is_the_same(place: tuple[StartedAnew, Path]) -> None:
    server, folder = place
    mark = unique_process_name()
    with httpx.Client(base_url=server.url, timeout=60) as http:
        tier = http.get("/v1/health").json()["tools"]
        args = {"folder": str(folder), "pid": server.pid, "mark": mark}
        ran = http.post("/v1/tools/run", json={"source_code": ATTACKS, "args": args}).json()
        assert ran["status"] == "success", (ran, tier)
        assert json.loads(ran["tool_return"])["done"] == []
        until(lambda: processes_named(mark) == [], seconds=END_SECONDS)
        assert not (folder / "mark").exists()
        assert http.get("/v1/tools/").status_code == 200
