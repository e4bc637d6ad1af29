"""Messages from a zygote are untrusted: the server must not touch processes and files that are not the zygote's.

The zygotes here are our own programs that send invalid messages; the fork server takes them for real ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.waiting import async_until
from holdfast.tools.inside.confinement import Confinement
from holdfast.tools.sandbox.cell_handle import Ended
from holdfast.tools.sandbox.fork_server import CellEnded, CellMade, Failed, ForkServer, Ready, Refused, parse_message

from .processes import END_SECONDS, alive

LYING_ZYGOTE = """#!{python} -S
import json, os, socket, sys
server = socket.socket(fileno=int(sys.argv[-1]))
server.recv(100_000)
server.send(b'{{"ready": 1}}')
server.recv(100_000)
ours, theirs = socket.socketpair()
pidfd = os.pidfd_open({named})
socket.send_fds(server, [json.dumps({news}).encode()], [pidfd, ours.fileno()])
sys.stdin.read()
while server.recv(1000):
    pass
"""


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not a tool, the leader of its own process group."""
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


async def server_with_lying_zygote(scratch: Path, news: dict[str, Any], *, named: str) -> ForkServer:
    program = scratch.with_name(scratch.name + "-liar")
    program.write_text(LYING_ZYGOTE.format(python=sys.executable, news=news, named=named))
    program.chmod(0o755)
    try:
        confinement = Confinement(tier="B", scratch=f"{scratch}/holdfast-tools-{'0' * 32}")
        server = ForkServer(str(program), confinement, ())
        with pytest.raises(OSError, match="fork server"):
            await server.cell()
    finally:
        program.unlink()
    return server


async def test_a_process_that_is_not_its_own_is_not_killed(scratch: Path, bystander: subprocess.Popen[bytes]) -> None:
    news = {"cell": bystander.pid, "scratch": "1f"}
    server = await server_with_lying_zygote(scratch, news, named="os.getpid()")
    await async_until(lambda: not server.alive, seconds=END_SECONDS)
    await server.close()
    assert alive(bystander.pid)
    assert os.listdir(scratch) == []


async def test_a_folder_that_is_not_its_own_is_not_removed(scratch: Path) -> None:
    victim = scratch / "victim"
    victim.mkdir()
    server = await server_with_lying_zygote(scratch, {"cell": 77, "scratch": "../victim"}, named="os.getpid()")
    await server.close()
    assert victim.is_dir()
    victim.rmdir()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"{",
        b"[" * 4000,
        b"[]",
        b'"ready"',
        {"cell": "7", "scratch": None},
        {"cell": 1, "scratch": None},
        {"cell": -5, "scratch": "1f"},
        {"cell": 7},
        {"cell": 7, "scratch": "../x"},
        {"cell": 7, "scratch": "/etc"},
        {"cell": 7, "scratch": ""},
        {"ended": 7},
        {"ended": 7, "status": 0, "limit": "patience", "cpu_seconds": 0.0},
        {"ended": 7, "status": "0", "limit": None, "cpu_seconds": 0.0},
        {"refused": 7},
        {"something": "else"},
    ],
)
def test_an_invalid_message_is_rejected(said: bytes | dict[str, Any]) -> None:
    assert parse_message(said if isinstance(said, bytes) else json.dumps(said).encode()) is None


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"cell": 7, "scratch": "1f3a"}, CellMade(7, "1f3a")),
        ({"cell": 7, "scratch": None}, CellMade(7, "")),
        ({"ended": 7, "status": 9, "limit": "disk", "cpu_seconds": 1}, CellEnded(7, Ended(9, "disk", 1.0))),
        ({"refused": "no room"}, Refused("no room")),
        ({"failed": "no namespaces"}, Failed("no namespaces")),
        ({"ready": 12}, Ready()),
    ],
)
def test_a_valid_message_is_parsed(said: dict[str, Any], meant: object) -> None:
    assert parse_message(json.dumps(said).encode()) == meant
