"""Tools that try to get processes, memory, time or rights beyond their limits, and tools that resist being killed."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import time

import pytest

from holdfast.testing.waiting import async_until
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

from .processes import ESCAPERS, processes_named, run, unique_process_name

ONE = "def tool():\n    return 1"


async def test_a_fork_bomb_stops_at_its_limit_and_other_calls_can_still_fork(toolbox: ProcessToolbox) -> None:
    mark = unique_process_name()
    bomb = f"""
import ctypes, os, time
def tool():
    ctypes.CDLL(None).prctl(15, b"{mark}", 0, 0, 0)
    while True:
        try:
            os.fork()
        except BlockingIOError:
            time.sleep(0.05)
"""
    call = asyncio.create_task(run(toolbox, bomb, limits={"processes": 20}))
    await async_until(lambda: len(processes_named(mark)) >= 15)
    assert (await run(toolbox, ONE)).content == "1"
    assert len(processes_named(mark)) <= 20
    call.cancel()
    await asyncio.wait([call])
    assert processes_named(mark) == []


async def test_a_process_that_wants_four_gigabytes_gets_an_error(toolbox: ProcessToolbox) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = await run(toolbox, "def tool():\n    return len(bytearray(4 * 1024**3))")
    assert "MemoryError" in str(outcome.content)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


async def test_many_processes_that_want_200_megabytes_each_are_ended(toolbox: ProcessToolbox) -> None:
    source = """
import os, time
def tool():
    for _ in range(31):
        if os.fork() == 0:
            held = bytearray(b"x") * 200_000_000
            time.sleep(60)
    time.sleep(60)
"""
    outcome = await run(toolbox, source, limits={"wall_seconds": 30})
    assert "took more than 536870912 bytes of memory" in str(outcome.content)


@pytest.mark.parametrize(
    "line",
    [
        "while True: pass",
        "7 ** 10 ** 8",
        "time.sleep(60)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)",
        "os.kill(os.getpid(), signal.SIGSTOP); time.sleep(60)",
    ],
)
async def test_whatever_does_not_end_is_killed_at_its_time(toolbox: ProcessToolbox, line: str) -> None:
    await run(toolbox, ONE)
    began = time.monotonic()
    outcome = await run(toolbox, f"import os, signal, time\ndef tool():\n    {line}", limits={"wall_seconds": 0.5})
    assert "ran longer than 0.5 seconds" in str(outcome.content)
    assert time.monotonic() - began < 1.5  # 0.6 on a quiet machine; `python -m bench sandbox` measures it


async def test_a_cancel_reaches_whatever_was_forked_twice_into_other_sessions(toolbox: ProcessToolbox) -> None:
    mark = unique_process_name()
    call = asyncio.create_task(run(toolbox, ESCAPERS, {"mark": mark, "then": "wait"}))
    await async_until(lambda: len(processes_named(mark)) == 10)
    call.cancel()
    await asyncio.wait([call])
    assert processes_named(mark) == []


async def test_a_tool_that_leaves_a_daemon_is_answered_at_once_and_the_daemon_is_dead(
    toolbox: ProcessToolbox,
) -> None:
    mark = unique_process_name()
    began = time.monotonic()
    outcome = await run(toolbox, ESCAPERS, {"mark": mark, "then": "return"})
    assert outcome.content == "left them behind"
    assert time.monotonic() - began < 5
    assert processes_named(mark) == []


# The attack in which the server is killed outright is in test_process_endings.


@pytest.mark.parametrize(
    "line", ["os.closerange(0, 256); os._exit(0)", "os._exit(0)", "ctypes.string_at(0)", "os.abort()"]
)
async def test_a_tool_that_breaks_itself_has_no_result_and_the_next_call_is_fine(
    toolbox: ProcessToolbox, line: str
) -> None:
    outcome = await run(toolbox, f"import ctypes, os\ndef tool():\n    {line}")
    assert "tool ended without a result" in str(outcome.content)
    assert (await run(toolbox, ONE)).content == "1"


RIGHTS = """
import ctypes, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def tool(server: int) -> dict:
    parent = os.getppid()
    def call(function, *arguments):
        ctypes.set_errno(0)
        result = function(*arguments)
        return "done" if result >= 0 else os.strerror(ctypes.get_errno())
    buffer = ctypes.create_string_buffer(16)
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 16)
    said = {
        "ptrace": call(libc.ptrace, 16, server, 0, 0),
        "ptrace parent": call(libc.ptrace, 16, parent or 1, 0, 0),
        "process_vm_writev": call(libc.process_vm_writev, server, vector, 1, vector, 1, 0),
        "unshare user": call(libc.unshare, 0x10000000),
        "unshare mount": call(libc.unshare, 0x00020000),
        "mount": call(libc.mount, b"none", b"/", b"tmpfs", 0, None),
        "umount": call(libc.umount2, b"/proc", 2),
        "setns": call(libc.setns, 0, 0),
        "chroot": call(libc.chroot, b"."),
        "setuid": call(libc.setuid, 0),
        "io_uring": call(libc.syscall, 425, 8, buffer),
        "bpf": call(libc.syscall, 321, 0, buffer, 16),
        "keyctl": call(libc.syscall, 250, 0, 0, 0),
        "kill": call(libc.kill, server, 0),
        "shmget": call(libc.shmget, 0, 4096, 0o1600),
    }
    try:
        open(f"/proc/{parent}/mem", "wb")
        said["parent's memory"] = "done"
    except OSError as error:
        said["parent's memory"] = error.strerror
    for program in ("su", "mount", "ping"):
        try:
            done = subprocess.run([program, "127.0.0.1"], capture_output=True, stdin=subprocess.DEVNULL, timeout=10)
            said[f"program {program}"] = "done" if done.returncode == 0 else "refused"
        except (OSError, subprocess.TimeoutExpired) as error:
            said[f"program {program}"] = "refused"
    said["uid"] = os.getuid()
    try:
        said["capabilities"] = [line for line in open("/proc/self/status") if line.startswith("CapEff")]
    except PermissionError:
        said["capabilities"] = []
    return said
"""


async def test_and_20_no_rights_can_be_had(toolbox: ProcessToolbox) -> None:
    outcome = await run(toolbox, RIGHTS, {"server": os.getpid()})
    said = json.loads(str(outcome.content))
    uid, capabilities = said.pop("uid"), said.pop("capabilities")
    assert uid != 0
    assert all(int(line.split()[1], 16) == 0 for line in capabilities)
    assert {what: how for what, how in said.items() if how == "done"} == {}
    for what in ("ptrace", "unshare user", "mount", "setns", "io_uring", "bpf", "keyctl"):
        assert said[what] == "Operation not permitted", what


async def test_a_new_namespace_cannot_be_had_by_clone_either(toolbox: ProcessToolbox) -> None:
    source = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def tool() -> list:
    said = []
    for number, flags in ((56, 0x10000011), (435, 0)):
        result = libc.syscall(number, flags, 0, 0, 0, 0)
        if result == 0:
            os._exit(0)
        said.append(os.strerror(ctypes.get_errno()) if result < 0 else "done")
    return said
"""
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers in this tool are those of x86-64")
    outcome = await run(toolbox, source)
    assert json.loads(str(outcome.content)) == ["Operation not permitted", "Function not implemented"]
