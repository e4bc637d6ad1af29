"""Every limit of a tool, each reached by a test, and the errors when a tool dies without a result."""

from __future__ import annotations

import pytest

from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

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
    assert "MemoryError (the limit is 536870912 bytes of memory for one process)" in str(outcome.content)


async def test_a_file_is_bounded(toolbox: ProcessToolbox) -> None:
    outcome = await run(toolbox, "def tool():\n    open('f', 'wb').truncate(10**9)")
    assert "File too large" in str(outcome.content)
    assert "the limit is 67108864 bytes of files" in str(outcome.content)


async def test_open_files_are_bounded(toolbox: ProcessToolbox) -> None:
    source = "import os\ndef tool():\n    return [os.open('.', os.O_RDONLY) for _ in range(100)]"
    outcome = await run(toolbox, source, limits={"open_files": 50})
    assert "the limit is 50 open files" in str(outcome.content)


async def test_what_many_processes_take_together_is_bounded(toolbox: ProcessToolbox) -> None:
    source = """
import os, time
def tool():
    for _ in range(10):
        if os.fork() == 0:
            held = bytearray(os.urandom(1)) * 60_000_000
            time.sleep(60)
    time.sleep(60)
"""
    outcome = await run(toolbox, source, limits={"memory_bytes": 300_000_000, "wall_seconds": 30})
    assert "took more than 300000000 bytes of memory" in str(outcome.content)


async def test_processes_are_bounded(toolbox: ProcessToolbox) -> None:
    source = "import os, time\ndef tool():\n    for _ in range(500):\n        if os.fork() == 0: time.sleep(60)"
    content = str((await run(toolbox, source, limits={"processes": 20})).content)
    assert "BlockingIOError" in content
    assert "the limit is 20 processes and threads" in content


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
        ("ctypes.string_at(0)", "tool ended without a result (killed by SIGSEGV)"),
        ("os.closerange(0, 100)", "tool ended without a result"),
        ("os.write(3, b'\\xff\\xff\\xff\\xffgarbage') and os._exit(0)", "tool ended without a result"),
        ("os.write(3, b'\\0\\1\\x86\\xa0' + b'[' * 100_000) and os._exit(0)", "tool ended without a result"),
    ],
)
async def test_a_tool_that_dies_without_a_result_is_told_so_and_the_next_call_works(
    toolbox: ProcessToolbox, line: str, words: str
) -> None:
    outcome = await run(toolbox, f"import ctypes, os\ndef tool():\n    {line}")
    assert outcome.status == "error"
    assert words in str(outcome.content)
    assert (await run(toolbox, "def tool():\n    return 1")).content == "1"
