"""How calls end: left-behind processes, cancels, killed zygotes, killed servers. No process or descriptor is left."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import time
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.waiting import async_until
from holdfast.tools.inside import linux
from holdfast.tools.inside.confinement import Tier
from holdfast.tools.sandbox.fork_server import SPARES
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

from .conftest import options_for
from .processes import (
    END_SECONDS,
    ESCAPERS,
    descriptors,
    job,
    max_descriptor,
    processes_named,
    run,
    unique_process_name,
)


async def test_a_tool_that_leaves_processes_behind_is_answered_and_they_are_dead(toolbox: ProcessToolbox) -> None:
    mark = unique_process_name()
    outcome = await run(toolbox, ESCAPERS, {"mark": mark, "then": "return"})
    assert outcome.content == "left them behind"
    assert processes_named(mark) == []


RACING = """
import os
def race(mark: str) -> str:
    import ctypes
    for _ in range(40):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, mark.encode(), 0, 0, 0)
            os.fork()
            while True:
                pass
    return "raced"
"""


async def test_processes_that_are_busy_as_the_result_comes_are_dead_when_it_is_answered(
    toolbox: ProcessToolbox,
) -> None:
    for _ in range(5):
        mark = unique_process_name()
        outcome = await run(toolbox, RACING, {"mark": mark})
        assert outcome.status in ("success", "error")  # it may reach its limit of processes
        assert processes_named(mark) == []


@pytest.mark.parametrize(
    ("program", "alone"),
    [
        ("input()", True),
        ("import os\nif os.fork() == 0: os.read(0, 1)\ninput()", False),
        ("import threading\nthreading.Thread(target=input, daemon=True).start()\nthreading.Event().wait()", False),
    ],
)
async def test_a_process_is_alone_without_children_and_threads(program: str, alone: bool) -> None:
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", program], stdin=pipe, start_new_session=True)  # noqa: ASYNC220
    pidfd = os.pidfd_open(process.pid)
    try:
        await async_until(lambda: linux.is_alone(pidfd) is alone)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not linux.is_alone(pidfd)  # False if in doubt: the process is gone
    os.close(pidfd)


async def test_a_cancel_kills_everything_before_it_gets_out(toolbox: ProcessToolbox) -> None:
    mark = unique_process_name()
    call = asyncio.create_task(run(toolbox, ESCAPERS, {"mark": mark, "then": "wait"}))
    await async_until(lambda: len(processes_named(mark)) == 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert processes_named(mark) == []


async def test_a_second_cancel_does_not_let_a_tool_live(toolbox: ProcessToolbox) -> None:
    mark = unique_process_name()
    call = asyncio.create_task(run(toolbox, ESCAPERS, {"mark": mark, "then": "wait"}))
    await async_until(lambda: len(processes_named(mark)) == 10)
    call.cancel()
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert processes_named(mark) == []


async def test_a_call_cancelled_before_its_process_is_there_leaves_nothing(toolbox: ProcessToolbox) -> None:
    mark = unique_process_name()
    call = asyncio.create_task(run(toolbox, ESCAPERS, {"mark": mark, "then": "wait"}))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert processes_named(mark) == []
    assert (await run(toolbox, "def tool():\n    return 1")).content == "1"
    await async_until(lambda: only_spares_are_left(toolbox), seconds=END_SECONDS)


async def test_closing_ends_the_calls_in_progress_and_refuses_new_ones(toolbox: ProcessToolbox) -> None:
    mark = unique_process_name()
    call = asyncio.create_task(run(toolbox, ESCAPERS, {"mark": mark, "then": "wait"}))
    await async_until(lambda: len(processes_named(mark)) == 10)
    await toolbox.close()
    assert "shutting down" in str((await call).content)
    assert processes_named(mark) == []
    assert "shutting down" in str((await run(toolbox, "def tool(): ...")).content)


async def test_after_the_fork_server_was_killed_the_next_calls_work(toolbox: ProcessToolbox) -> None:
    source = "def tool():\n    return 1"
    await run(toolbox, source)
    server = toolbox.fork_servers[0]
    before = server.pid
    os.kill(before, signal.SIGKILL)
    await async_until(
        lambda: not server.alive, seconds=END_SECONDS
    )  # before that, a call may get a dying cell and is lost
    outcomes = await asyncio.gather(*(run(toolbox, source) for _ in range(8)))
    assert {outcome.content for outcome in outcomes} == {"1"}
    assert before not in [server.pid for server in toolbox.fork_servers]


async def test_a_call_whose_fork_server_is_killed_ends_with_all_its_processes(toolbox: ProcessToolbox) -> None:
    mark = unique_process_name()
    call = asyncio.create_task(run(toolbox, ESCAPERS, {"mark": mark, "then": "wait"}))
    await async_until(lambda: len(processes_named(mark)) == 10)
    os.kill(toolbox.fork_servers[0].pid, signal.SIGKILL)
    assert "the tool's process was lost" in str((await call).content)
    await async_until(lambda: processes_named(mark) == [], seconds=END_SECONDS)


async def test_two_hundred_calls_leak_no_descriptors(toolbox: ProcessToolbox) -> None:
    source = "def tool():\n    return 1"
    await run(toolbox, source)
    await async_until(lambda: only_spares_are_left(toolbox), seconds=END_SECONDS)
    pid = zygote_of(toolbox)
    before, theirs_before = descriptors(), descriptors(pid)
    for _ in range(20):
        await asyncio.gather(*(run(toolbox, source) for _ in range(10)))
    await async_until(lambda: only_spares_are_left(toolbox), seconds=END_SECONDS)
    await async_until(lambda: descriptors() <= before, seconds=END_SECONDS)
    await async_until(lambda: descriptors(pid) <= theirs_before, seconds=END_SECONDS)


async def test_a_server_out_of_descriptors_says_so_and_leaks_none(toolbox: ProcessToolbox) -> None:
    source = "def tool():\n    return 1"
    await run(toolbox, source)
    await async_until(lambda: only_spares_are_left(toolbox), seconds=END_SECONDS)
    before, limits = descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE)
    for room in range(1, 9):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max_descriptor() + room, limits[1]))
        try:
            outcome = await run(toolbox, source)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert outcome.content == "1" or "could not be started" in str(outcome.content)
    await async_until(lambda: only_spares_are_left(toolbox), seconds=END_SECONDS)
    assert descriptors() == before


async def test_a_killed_spare_is_replaced(toolbox: ProcessToolbox) -> None:
    source = "def tool():\n    return 1"
    await run(toolbox, source)
    await async_until(lambda: only_spares_are_left(toolbox), seconds=END_SECONDS)
    for pid in linux.children_of(zygote_of(toolbox)):
        os.kill(pid, signal.SIGKILL)
    assert (await run(toolbox, source)).content == "1"
    await async_until(lambda: only_spares_are_left(toolbox), seconds=END_SECONDS)


async def test_a_closed_zygote_leaves_no_zombie(toolbox: ProcessToolbox) -> None:
    await run(toolbox, "def tool():\n    return 1")
    await async_until(lambda: only_spares_are_left(toolbox), seconds=END_SECONDS)
    pids = [zygote_of(toolbox), *linux.children_of(zygote_of(toolbox))]
    await toolbox.close()
    assert not {str(pid) for pid in pids} & set(os.listdir("/proc"))


def zygote_of(toolbox: ProcessToolbox) -> int:
    """In tier A the server starts a stub, and the stub's child is the zygote."""
    server = toolbox.fork_servers[0]
    return linux.children_of(server.pid)[0] if server.confinement.tier == "A" else server.pid


def only_spares_are_left(toolbox: ProcessToolbox) -> bool:
    """The zygote has as many children as it should have spares, and no zombie."""
    return toolbox.fork_servers[0].spares == SPARES == len(linux.children_of(zygote_of(toolbox)))


async def test_calls_run_at_the_same_time_up_to_a_limit_for_each_tenant(tier: Tier, scratch: Path) -> None:
    toolbox = ProcessToolbox(scratch_root=scratch, calls_per_tenant=2, **options_for(tier))
    mark = unique_process_name()
    calls = [
        asyncio.create_task(run(toolbox, ESCAPERS, {"mark": mark, "then": "wait"}, org_id="org-a")) for _ in range(4)
    ]
    await async_until(lambda: len(processes_named(mark)) == 20)
    assert (await run(toolbox, "def tool():\n    return 1", org_id="org-b")).content == "1"
    assert len(processes_named(mark)) == 20
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    await toolbox.close()


async def test_tenants_share_no_zygote_and_idle_ones_are_closed(toolbox: ProcessToolbox) -> None:
    for org_id in ("org-a", "org-b", "org-a"):
        await run(toolbox, "def tool(): ...", org_id=org_id)
    assert len({server.pid for server in toolbox.fork_servers}) == 3  # and the canary's
    toolbox.close_idle()
    assert toolbox.fork_servers == []
    assert (await run(toolbox, "def tool():\n    return 1", org_id="org-a")).content == "1"


SERVER = """
import asyncio, json, sys
from pathlib import Path
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox
from tests.tools.processes import ESCAPERS, run
scratch, means, mark = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
asyncio.run(run(ProcessToolbox(scratch_root=scratch, **means), ESCAPERS, {"mark": mark, "then": "wait"}))
"""


async def server_with_a_tool(scratch: Path, mark: str, **means: Any) -> Process:
    """A server in its own process, in which a tool has started ten escaping processes."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'src'}"}
    command = [sys.executable, "-c", SERVER, str(scratch), json.dumps(means), mark]
    server = await asyncio.create_subprocess_exec(*command, cwd=root, env=environment)
    try:
        await async_until(lambda: len(processes_named(mark)) == 10)
    except BaseException:
        server.kill()
        await server.wait()
        raise
    return server


async def test_the_tools_of_a_server_that_stands_still_are_dead_before_its_lease_has_run_out(
    tier: Tier, scratch: Path
) -> None:
    mark, silence_seconds = unique_process_name(), 1.0
    server = await server_with_a_tool(scratch, mark, silence_seconds=silence_seconds, **options_for(tier))
    try:
        await asyncio.sleep(2 * silence_seconds)  # while the server is alive, its tools may run on
        assert len(processes_named(mark)) == 10
        server.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        await async_until(lambda: processes_named(mark) == [], seconds=END_SECONDS)
        assert time.monotonic() - stopped < silence_seconds * 4 / 3
    finally:
        server.kill()
        await server.wait()


async def test_a_server_killed_outright_leaves_no_tool_behind(
    toolbox: ProcessToolbox, tier: Tier, scratch: Path
) -> None:
    mark, other = unique_process_name(), scratch / "other"
    other.mkdir(mode=0o711)
    server = await server_with_a_tool(other, mark, **options_for(tier))
    server.kill()
    await server.wait()
    await async_until(lambda: processes_named(mark) == [], seconds=END_SECONDS)
    await async_until(lambda: list(other.iterdir()) == [], seconds=END_SECONDS)
    other.rmdir()


async def test_a_cancel_is_prompt_even_with_escaped_grandchildren(toolbox: ProcessToolbox) -> None:
    mark = unique_process_name()
    call = asyncio.create_task(toolbox.run(job(ESCAPERS, {"mark": mark, "then": "wait"})))
    await async_until(lambda: len(processes_named(mark)) == 10)
    started = time.monotonic()
    call.cancel()
    await asyncio.wait([call])
    assert time.monotonic() - started < 1.0
