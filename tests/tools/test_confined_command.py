"""Confined commands: what they can read, write and reach, and that they end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.ports.outbound import AddressRefused
from holdfast.testing.waiting import async_until
from holdfast.tools.packages.confined_command import ConfinedCommand
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

from .processes import END_SECONDS, processes_named, unique_process_name

NESTED = "for n in $(seq 1200); do mkdir d && cd d; done"
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


def shell(text: str, folder: Path, **more: object) -> ConfinedCommand:
    return ConfinedCommand(argv=("/bin/sh", "-c", text), writable=folder, **more)  # type: ignore[arg-type]


@pytest.fixture
def folder(scratch: Path) -> Path:
    made = scratch.with_name(scratch.name + "-built")
    made.mkdir()
    return made


async def test_a_command_changes_its_folder_and_nothing_else(toolbox: ProcessToolbox, folder: Path) -> None:
    text = "echo built > made; touch /usr/x /etc/x 2>&1; cat /etc/shadow; ls /work; echo $SECRET; exit 3"
    end = await toolbox.run_confined_command(shell(text, folder, environment={"SECRET": "given"}))
    assert end.exit_code == 3
    assert (folder / "made").read_text() == "built\n"
    assert "given" in end.output
    assert "root:" not in end.output
    assert "holdfast" not in end.output


async def test_a_command_that_does_not_end_is_killed_with_all_that_it_started(
    toolbox: ProcessToolbox, folder: Path
) -> None:
    mark = unique_process_name()
    script = f"import ctypes, os, time; os.fork(); ctypes.CDLL(None).prctl(15, b'{mark}', 0, 0, 0); time.sleep(60)"
    command = ConfinedCommand(argv=(PYTHON, "-I", "-c", script), writable=folder)
    call = asyncio.create_task(toolbox.run_confined_command(command))
    await async_until(lambda: len(processes_named(mark)) == 2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await async_until(lambda: processes_named(mark) == [], seconds=END_SECONDS)
    end = await toolbox.run_confined_command(shell("sleep 60", folder, wall_seconds=1.0))
    assert (end.exit_code, end.limit) == (None, "time")


@pytest.mark.parametrize(
    "text",
    ["while :; do echo x > $((n += 1)); done", "while :; do head -c 1000000 /dev/zero > $((n += 1)); done", NESTED],
    ids=["files", "bytes", "nested"],
)
async def test_a_command_that_fills_the_disk_is_killed(toolbox: ProcessToolbox, folder: Path, text: str) -> None:
    """A malicious package may unpack without end."""
    end = await toolbox.run_confined_command(
        shell(text, folder, disk_bytes=20_000_000, disk_files=5_000, wall_seconds=60)
    )
    assert (end.exit_code, end.limit) == (None, "disk")


async def test_a_command_reaches_the_hosts_it_may_and_no_others(toolbox: ProcessToolbox, folder: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def resolve(host: str, _port: int) -> Sequence[str]:
        if host != "index.example":
            raise AddressRefused(f"{host} is not the index.")
        return ["127.0.0.1"]

    script = f"""
import urllib.request, urllib.error
print(urllib.request.urlopen("http://index.example:{port}/").read().decode())
for url in ("http://other.example:{port}/", "http://127.0.0.1:{port}/"):
    try:
        urllib.request.urlopen(url)
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode())
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
try:
    opener.open("http://127.0.0.1:{port}/")
except OSError as error:
    print("direct:", error)
"""
    command = ConfinedCommand(argv=(PYTHON, "-I", "-c", script), writable=folder, resolve=resolve)
    end = await toolbox.run_confined_command(command)
    server.close()
    assert end.exit_code == 0, end.output
    assert "hello" in end.output
    assert "403 holdfast: other.example is not the index." in end.output
    assert "403 holdfast: 127.0.0.1 is not the index." in end.output
    assert "direct: <urlopen error [Errno 13] Permission denied>" in end.output


async def test_a_command_that_is_not_there_says_so(toolbox: ProcessToolbox, folder: Path) -> None:
    end = await toolbox.run_confined_command(ConfinedCommand(argv=("/no/such/program",), writable=folder))
    assert end.exit_code == 127
    assert "/no/such/program" in end.output
