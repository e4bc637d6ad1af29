"""Tools that try to read or change files of the server, the system or other calls, or to fill the disk; in tiers A and
B.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.waiting import async_until
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

from .processes import ESCAPERS, processes_named, run, unique_process_name

TRY_TO_READ = """
import os
def tool(paths: list) -> dict:
    found = {}
    for path in paths:
        try:
            if os.path.samefile(path, "."):
                continue
            found[path] = str(os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(20))
        except OSError as error:
            found[path] = type(error).__name__
    return found
"""
REFUSED = {"FileNotFoundError", "PermissionError", "NotADirectoryError"}


async def tried(toolbox: ProcessToolbox, paths: list[str]) -> dict[str, str]:
    outcome = await run(toolbox, TRY_TO_READ, {"paths": paths})
    found: dict[str, str] = json.loads(str(outcome.content))
    return found


async def test_files_of_the_server_and_of_the_system_cannot_be_read(toolbox: ProcessToolbox) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        database = Path(folder) / "holdfast.db"
        database.write_text("agents")
        database.chmod(0o644)
        os.chmod(folder, 0o755)
        source = Path(holdfast.__file__)
        system = ["/etc/shadow", "/root/.profile", "/home", "/etc/ssh", "/var/lib"]
        paths = [*system, str(database), folder, str(source), str(source.parent)]
        found = await tried(toolbox, paths)
    assert {path: what for path, what in found.items() if what not in REFUSED} == {}


async def test_an_installed_server_is_hidden_among_the_packages(toolbox: ProcessToolbox, scratch: Path) -> None:
    """As after `pip install`, which puts Holdfast beside the libraries that tools may import."""
    packages = scratch.with_name(scratch.name + "-packages")
    (packages / "holdfast").mkdir(parents=True)
    (packages / "library").mkdir()
    (packages / "holdfast/secret.py").write_text("KEY = 1")
    (packages / "library/__init__.py").write_text("here = True")
    means = toolbox.fork_servers[0].confinement
    own = ProcessToolbox(
        scratch_root=scratch,
        tiers=(means.tier,),
        python=toolbox.python,
        packages=[str(packages)],
        hidden=[packages / "holdfast"],
    )
    source = f"""
import library
def tool():
    try:
        return open("{packages}/holdfast/secret.py").read()
    except OSError:
        pass
    try:
        from holdfast import secret
    except ImportError:
        return library.here
"""
    assert (await run(own, source)).content == "true"
    await own.close()


async def test_the_environment_holds_what_was_declared(
    toolbox: ProcessToolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_PASSWORD", "sesame-sesame")
    source = "import os\ndef tool():\n    return dict(os.environ)"
    seen = json.loads(str((await run(toolbox, source, environment={"MINE": "x"})).content))
    assert set(seen) == {"PATH", "LANG", "HOME", "TMPDIR", "MINE", "HOLDFAST_IDEMPOTENCY_KEY"}


async def test_no_other_process_can_be_looked_into(toolbox: ProcessToolbox) -> None:
    source = """
import os
def tool(server: int) -> list:
    found, pids = [], {str(server), "1", str(os.getppid())}
    try:
        pids |= {name for name in os.listdir("/proc") if name.isdigit()}
    except PermissionError:
        pass
    for pid in pids - {str(os.getpid())}:
        for name in ("environ", "cmdline", "mem", "maps", "root", "cwd", "fd"):
            path = f"/proc/{pid}/{name}"
            try:
                found.append([path, str(os.listdir(path) if name in ("root", "cwd", "fd") else open(path).read(9))])
            except OSError:
                pass
    return found
"""
    outcome = await run(toolbox, source, {"server": os.getpid()})
    assert json.loads(str(outcome.content)) == []


FILL = """
import os
def tool(where: str, how: str) -> str:
    place = {"cwd": ".", "tmp": os.environ["TMPDIR"], "literal tmp": "/tmp", "shm": "/dev/shm"}[where]
    written = 0
    try:
        while True:
            with open(f"{place}/{written}", "wb") as file:
                file.write(b"x" * (1_000_000 if how == "bytes" else 1))
            written += 1
            if written > 100_000:
                return "no end"
    except OSError as error:
        return f"{error.strerror} after {written}"
"""


@pytest.mark.parametrize("how", ["bytes", "files"])
@pytest.mark.parametrize("where", ["cwd", "tmp", "literal tmp", "shm"])
async def test_a_disk_is_filled_to_the_quota_only(toolbox: ProcessToolbox, where: str, how: str) -> None:
    before = os.statvfs("/").f_bfree * os.statvfs("/").f_frsize
    outcome = await run(toolbox, FILL, {"where": where, "how": how})
    content = str(outcome.content)
    if toolbox.fork_servers[0].confinement.tier == "A":
        assert "No space left on device" in content
        assert int(content.split()[-1]) < (68 if how == "bytes" else 8192)
    elif where in ("cwd", "tmp"):
        assert "wrote more than 67108864 bytes, or too many files" in content
    else:  # the path does not exist in tier B
        assert "Permission denied after 0" in content
    assert before - os.statvfs("/").f_bfree * os.statvfs("/").f_frsize < 2**30


async def test_packages_and_the_interpreter_cannot_be_changed(toolbox: ProcessToolbox) -> None:
    source = """
import os, sys, sysconfig
def tool() -> list:
    library = sysconfig.get_path("stdlib")
    changed = []
    for path in (*(f"{folder}/x.pth" for folder in sys.path if os.path.isdir(folder)), f"{library}/sitecustomize.py",
                 f"{library}/__pycache__/x.pyc", "/usr/lib/x", "/etc/x", os.path.realpath(sys.executable)):
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
            changed.append(path)
        except OSError:
            pass
    return changed
"""
    assert json.loads(str((await run(toolbox, source)).content)) == []


async def test_nothing_is_left_for_another_call(toolbox: ProcessToolbox) -> None:
    leave = """
import os, socket
def tool():
    for place in (".", os.environ["TMPDIR"], "/tmp", "/dev/shm", "/var/tmp", "/run"):
        try:
            open(place + "/left", "w").write("x")
        except OSError:
            pass
    try:
        socket.socket(socket.AF_UNIX).bind("\\0left")
    except PermissionError:
        return os.getcwd()
"""
    look = """
import os
def tool(before: str) -> list:
    found = []
    for place in (".", os.environ["TMPDIR"], "/tmp", "/dev/shm", "/var/tmp", "/run", before):
        try:
            found += [name for name in os.listdir(place) if name == "left"]
        except OSError:
            pass
    return found
"""
    before = str((await run(toolbox, leave)).content)
    assert before.startswith("/")
    assert json.loads(str((await run(toolbox, look, {"before": before})).content)) == []


async def test_a_call_cannot_look_into_one_that_runs_beside_it(toolbox: ProcessToolbox) -> None:
    """In tier B all scratch folders are on one disk, and belong to one user if the server is not root."""
    mark = unique_process_name()
    beside = asyncio.create_task(run(toolbox, ESCAPERS, {"mark": mark, "then": "wait"}))
    await async_until(lambda: len(processes_named(mark)) == 10)
    scratch = toolbox.fork_servers[0].confinement.scratch
    folders = [f"{scratch}/{name}/work" for name in os.listdir(scratch)] if scratch else []
    found = await tried(toolbox, [scratch or "/nowhere", *folders])
    beside.cancel()
    await asyncio.wait([beside])
    assert {path: what for path, what in found.items() if what not in REFUSED} == {}
