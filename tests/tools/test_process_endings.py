"""How calls end: left-behind processes, cancels, killed fork servers, killed servers. Nothing stays alive or open."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import time
from pathlib import Path

import pytest

from holdfast.tools import linux
from holdfast.tools.process import ProcessToolbox

from .processes import ESCAPERS, alive, descriptors, job, max_descriptor, pids_in, run, until


async def test_a_tool_that_leaves_processes_behind_is_answered_and_they_are_dead(
    toolbox: ProcessToolbox, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    outcome = await run(toolbox, ESCAPERS, {"directory": str(marks), "then": "return"})
    pids = pids_in(marks, 10)
    assert outcome.content == "left them behind"
    assert len(pids) == 10
    assert not any(alive(pid) for pid in pids)


async def test_a_cancel_kills_everything_before_it_gets_out(toolbox: ProcessToolbox, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    call = asyncio.create_task(run(toolbox, ESCAPERS, {"directory": str(marks), "then": "wait"}))
    await until(lambda: bool(pids_in(marks, 10)))
    pids = pids_in(marks, 10)
    assert all(alive(pid) for pid in pids)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not any(alive(pid) for pid in pids)


async def test_a_second_cancel_does_not_let_a_tool_live(toolbox: ProcessToolbox, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    call = asyncio.create_task(run(toolbox, ESCAPERS, {"directory": str(marks), "then": "wait"}))
    await until(lambda: bool(pids_in(marks, 10)))
    call.cancel()
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not any(alive(pid) for pid in pids_in(marks, 10))


async def test_a_call_cancelled_before_its_process_is_there_never_runs(toolbox: ProcessToolbox, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    call = asyncio.create_task(run(toolbox, f"def tool():\n    open({str(mark)!r}, 'w')"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await run(toolbox, "def tool(): ...")
    assert not mark.exists()
    await until(lambda: only_the_spare_is_left(toolbox))


@pytest.mark.parametrize("sign", ["SIGSTOP", "SIGKILL"])
async def test_a_tool_that_harms_its_supervisor_does_not_live_longer(
    toolbox: ProcessToolbox, tmp_path: Path, sign: str
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    harm = f"os.kill(os.getppid(), signal.{sign})"
    source = ESCAPERS.replace('if then == "wait":', f"import signal; {harm}\n    if True:")
    await run(toolbox, source, {"directory": str(marks), "then": "wait"}, limits={"wall_seconds": 1.5})
    pids = pids_in(marks, 10)
    assert len(pids) == 10
    await until(lambda: not any(alive(pid) for pid in pids))


async def test_closing_ends_the_calls_in_progress_and_refuses_new_ones(tmp_path: Path) -> None:
    toolbox = ProcessToolbox(scratch_root=tmp_path)
    mark = tmp_path / "up"
    source = f"import time\ndef tool():\n    open({str(mark)!r}, 'w')\n    time.sleep(60)"
    call = asyncio.create_task(run(toolbox, source))
    await until(mark.exists)
    await toolbox.close()
    assert "shutting down" in str((await call).content)
    assert "shutting down" in str((await run(toolbox, source)).content)


async def test_after_the_fork_server_was_killed_the_next_call_works(toolbox: ProcessToolbox) -> None:
    source = "def tool():\n    return 1"
    await run(toolbox, source)
    before = toolbox.fork_server_pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    outcomes = await asyncio.gather(*(run(toolbox, source) for _ in range(8)))
    assert {outcome.content for outcome in outcomes} == {"1"}
    assert toolbox.fork_server_pid != before


async def test_a_call_in_progress_survives_the_fork_servers_death(toolbox: ProcessToolbox, tmp_path: Path) -> None:
    up, go_on = tmp_path / "up", tmp_path / "go"
    os.mkfifo(go_on)
    call = asyncio.create_task(run(toolbox, f"def tool():\n    open('{up}', 'w')\n    return open('{go_on}').read()"))
    await until(up.exists)
    os.kill(toolbox.fork_server_pid or 0, signal.SIGKILL)
    await asyncio.to_thread(go_on.write_text, "went on")
    assert (await call).content == "went on"


async def test_two_hundred_calls_leak_no_descriptors(toolbox: ProcessToolbox) -> None:
    source = "def tool():\n    return 1"
    await run(toolbox, source)
    pid = toolbox.fork_server_pid
    before, theirs_before = descriptors(), descriptors(pid)
    for _ in range(20):
        await asyncio.gather(*(run(toolbox, source) for _ in range(10)))
    assert descriptors() == before
    await until(lambda: descriptors(pid) <= theirs_before)
    await until(lambda: only_the_spare_is_left(toolbox))


async def test_a_server_out_of_descriptors_says_so_and_leaks_none(toolbox: ProcessToolbox) -> None:
    source = "def tool():\n    return 1"
    await run(toolbox, source)
    before, limits = descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE)
    for room in range(1, 9):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max_descriptor() + room, limits[1]))
        try:
            outcome = await run(toolbox, source)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert outcome.content == "1" or "could not be started" in str(outcome.content)
    assert descriptors() == before


async def test_a_killed_spare_is_replaced(toolbox: ProcessToolbox) -> None:
    source = "def tool():\n    return 1"
    await run(toolbox, source)
    await until(lambda: only_the_spare_is_left(toolbox))
    os.kill(linux.children_of(toolbox.fork_server_pid or 0)[0], signal.SIGKILL)
    assert (await run(toolbox, source)).content == "1"
    await until(lambda: only_the_spare_is_left(toolbox))


def only_the_spare_is_left(toolbox: ProcessToolbox) -> bool:
    """The fork server has one child, the spare for the next call, and no zombie."""
    return len(linux.children_of(toolbox.fork_server_pid or 0)) == 1


async def test_calls_run_at_the_same_time_up_to_a_limit(tmp_path: Path) -> None:
    toolbox = ProcessToolbox(scratch_root=tmp_path, concurrent_calls=2)
    source = f"""
import os, time
def tool(name: str):
    open({str(tmp_path)!r} + "/on-" + name, "w").close()
    seen = len([x for x in os.listdir({str(tmp_path)!r}) if x.startswith("on-")])
    time.sleep(0.02)
    os.unlink({str(tmp_path)!r} + "/on-" + name)
    return seen
"""
    outcomes = await asyncio.gather(*(run(toolbox, source, {"name": str(number)}) for number in range(6)))
    assert max(int(str(outcome.content)) for outcome in outcomes) <= 2
    await toolbox.close()


SERVER = """
import asyncio, sys
from pathlib import Path
from holdfast.tools.process import ProcessToolbox
from tests.tools.processes import ESCAPERS, run
asyncio.run(run(ProcessToolbox(scratch_root=Path(sys.argv[2])), ESCAPERS, {"directory": sys.argv[1], "then": "wait"}))
"""


async def test_a_server_killed_outright_leaves_no_tool_behind(tmp_path: Path) -> None:
    marks, scratch = tmp_path / "marks", tmp_path / "scratch"
    marks.mkdir()
    scratch.mkdir()
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'src'}"}
    command = [sys.executable, "-c", SERVER, str(marks), str(scratch)]
    server = await asyncio.create_subprocess_exec(*command, cwd=root, env=environment)
    await until(lambda: bool(pids_in(marks, 10)), seconds=20)
    server.kill()
    await server.wait()
    await until(lambda: not any(alive(pid) for pid in pids_in(marks, 10)))
    await until(lambda: list(scratch.iterdir()) == [])


async def test_a_cancel_is_prompt_even_with_escaped_grandchildren(toolbox: ProcessToolbox, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    call = asyncio.create_task(toolbox.run(job(ESCAPERS, {"directory": str(marks), "then": "wait"})))
    await until(lambda: bool(pids_in(marks, 10)))
    started = time.monotonic()
    call.cancel()
    await asyncio.wait([call])
    assert time.monotonic() - started < 1.0
