"""Everything that a tool can use up has a bound, and each test here reaches one; then the ways in which a tool dies."""

from __future__ import annotations

import os

import pytest

from holdfast.tools.process import ProcessToolbox

from .processes import run


async def test_a_tool_that_runs_too_long_is_killed(toolbox: ProcessToolbox) -> None:
    source = """
import signal, time
def tool():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("on it")
    time.sleep(60)
"""
    outcome = await run(toolbox, source, limits={"wall_seconds": 0.2})
    assert outcome.content == "Error executing function tool: the tool ran longer than 0.2 seconds and was killed"
    assert outcome.stdout == ("on it\n",)


async def test_processor_time_is_bounded(toolbox: ProcessToolbox) -> None:
    outcome = await run(toolbox, "def tool():\n    while True: pass", limits={"cpu_seconds": 1})
    assert "processor time" in str(outcome.content)


async def test_memory_is_bounded(toolbox: ProcessToolbox) -> None:
    outcome = await run(toolbox, "def tool():\n    return len(bytearray(2_000_000_000))")
    assert "MemoryError" in str(outcome.content)


async def test_a_file_is_bounded(toolbox: ProcessToolbox) -> None:
    outcome = await run(toolbox, "def tool():\n    open('f', 'wb').truncate(10**9)")
    assert "File too large" in str(outcome.content)


@pytest.mark.skipif(os.getuid() == 0, reason="the kernel exempts root from RLIMIT_NPROC")
async def test_processes_are_bounded(toolbox: ProcessToolbox) -> None:
    source = "import os, time\ndef tool():\n    for _ in range(500):\n        if os.fork() == 0: time.sleep(60)"
    assert "BlockingIOError" in str((await run(toolbox, source, limits={"processes": 20})).content)


async def test_output_is_kept_up_to_a_limit_and_drained_beyond(toolbox: ProcessToolbox) -> None:
    source = "import os\ndef tool():\n    for _ in range(300):\n        os.write(1, b'x' * 100_000)\n    return 'done'"
    outcome = await run(toolbox, source, limits={"output_bytes": 1000})
    assert outcome.content == "done"
    assert outcome.stdout == ("x" * 1000 + "\n[output truncated after 1000 bytes]\n",)


async def test_output_that_is_no_text_becomes_text(toolbox: ProcessToolbox) -> None:
    outcome = await run(toolbox, "import os\ndef tool():\n    os.write(2, b'\\xff\\0ok')\n    print('\\ud800')")
    assert outcome.stderr == ("\ufffd\ufffdok",)
    assert outcome.stdout == ("\\ud800\n",)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("os._exit(7)", "tool ended without a result (exit code 7)"),
        ("os._exit(0)", "tool ended without a result (exit code 0)"),
        ("os.kill(os.getpid(), 11)", "tool ended without a result (killed by SIGSEGV)"),
        ("os.closerange(0, 100)", "tool ended without a result"),
        ("os.write(3, b'\\xff\\xff\\xff\\xffgarbage') and os._exit(0)", "tool ended without a result"),
        ("os.write(3, b'\\0\\1\\x86\\xa0' + b'[' * 100_000) and os._exit(0)", "tool ended without a result"),
        ("os.kill(os.getppid(), 9); time.sleep(60)", "the tool's process was lost"),
    ],
)
async def test_a_tool_that_dies_without_a_result_is_told_so_and_the_next_call_works(
    toolbox: ProcessToolbox, line: str, words: str
) -> None:
    outcome = await run(toolbox, f"import os, time\ndef tool():\n    {line}")
    assert outcome.status == "error"
    assert words in str(outcome.content)
    assert (await run(toolbox, "def tool():\n    return 1")).content == "1"
