"""Tools that print too much, return what is not text, or forge result frames."""

from __future__ import annotations

import asyncio
import resource
import time

import pytest

from holdfast.core.conversation.messages import Text
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

from .processes import run


@pytest.mark.parametrize("stream", [1, 2])
@pytest.mark.parametrize("chunk", ["b'x' * 1_000_000", "b'line\\n' * 200_000", "b'\\xff\\x00' * 500_000"])
async def test_floods_are_cut_and_the_servers_memory_stays_flat(
    toolbox: ProcessToolbox, stream: int, chunk: str
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    source = f"""
import os
def tool():
    chunk = {chunk}
    for _ in range(200):
        os.write({stream}, chunk)
    return 'done'
"""
    outcome = await run(toolbox, source, limits={"output_bytes": 10_000})
    kept = (outcome.stdout if stream == 1 else outcome.stderr)[0]
    assert outcome.content == "done"
    assert kept.endswith("[output truncated after 10000 bytes]\n")
    assert "\0" not in kept
    assert len(kept) < 11_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # of 200 MB


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("'x' * 200_000_000", "larger than the limit"),
        ("deep(100_000)", "nested too deeply"),
        ("float('inf')", "cannot be written as JSON"),
        ("{'a': chr(0)}", "x"),
        ("'\\ud800'", "surrogate"),
    ],
)
async def test_a_result_that_is_none_is_a_clean_error(toolbox: ProcessToolbox, expression: str, words: str) -> None:
    source = f"""
def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value
def tool():
    return {expression}
"""
    outcome = await run(toolbox, source)
    if words == "x":  # a NUL inside JSON is an escape, and a text like any other
        assert outcome.content == '{"a": "\\u0000"}'
    else:
        assert outcome.status == "error"
        assert words in str(outcome.content)


def framed(head: bytes, contents: bytes = b"") -> bytes:
    return len(head).to_bytes(4, "big") + len(contents).to_bytes(4, "big") + head + contents


@pytest.mark.parametrize(
    "written",
    [
        framed(b'{"status": "success", "content": 9, "content": 1}', b"b"),
        framed(b'{"status": "success", "content": 1}', b"\0"),
        framed(b'{"status": "success", "content": 1}', b"\xff"),
        framed(b'{"status": "success", "content": 2}', b"a"),
        framed(b'{"status": "success", "content": -1}', b"a"),
        framed(b'{"status": "success", "content": true}', b"a"),
        framed(b'{"status": "success", "content": {"deep": 1}}'),
        framed(b'{"status": "success", "parts": []}'),
        framed(b'{"status": "success", "parts": {"a": 1}}'),
        framed(b'{"status": "success", "parts": ' + str([["text", 0]] * 65).replace("'", '"').encode() + b"}"),
        framed(b'{"status": "success", "content": 0, "memory": [["label"]]}'),
        framed(b'{"status": "success", "\\u0000": 1}'),
        framed(b'{"status": "root", "content": 0}'),
        framed(b"[" * 60_000),
        framed(b'{"status": "success", "content": 0, "j": [' + b"0," * 40_000 + b"0]}"),
        framed(b"NaN"),
        framed(b""),
        b"\xff" * 8,
        b"",
    ],
)
async def test_a_frame_that_the_tool_wrote_by_itself_is_its_own_result_or_none(
    toolbox: ProcessToolbox, written: bytes
) -> None:
    source = f"import os\ndef tool():\n    os.write(3, {written!r})\n    os._exit(0)"
    outcome = await run(toolbox, source)
    if written.endswith(b"b"):
        assert outcome.content == "b"
    else:
        assert "tool ended without a result" in str(outcome.content)
    assert (await run(toolbox, "def tool():\n    return 1")).content == "1"


FLOOD_OF_PARTS = """
import os
def tool():
    size = 16 * 1024 * 1024
    head = b'{"status": "success", "parts": [' + b", ".join([b'["text", 1]'] * 64) + b"]}"
    os.write(3, len(head).to_bytes(4, "big") + size.to_bytes(4, "big") + head)
    for _ in range(16):
        os.write(3, b"x" * 1024 * 1024)
    os._exit(0)
"""
JUNK = """
import os
def tool():
    head = b'{"status": "success", "content": 0, "j": [' + b"[0]," * 24_000_000 + b"[0]]}"
    written = len(head).to_bytes(4, "big") + bytes(4) + head
    while written:
        written = written[os.write(3, written):]
    os._exit(0)
"""


@pytest.mark.parametrize("source", [FLOOD_OF_PARTS, JUNK], ids=["contents", "head"])
async def test_reading_a_large_frame_takes_the_event_loop_no_time(toolbox: ProcessToolbox, source: str) -> None:
    limits = {"result_bytes": 16 * 1024 * 1024, "memory_bytes": 1024**3}
    call = asyncio.create_task(run(toolbox, source, limits=limits))
    longest = 0.0
    while not call.done():
        before = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - before)
    assert longest < 0.25, f"one turn of the event loop took {longest:.2f} s of its own processor time"
    await call


@pytest.mark.parametrize("count", [64, 65])
async def test_a_result_has_so_many_parts_at_most(toolbox: ProcessToolbox, count: int) -> None:
    source = f"def tool():\n    return [{{'type': 'text', 'text': str(n)}} for n in range({count})]"
    outcome = await run(toolbox, source)
    if count > 64:
        assert "65 content parts, more than the limit of 64" in str(outcome.content)
    else:
        assert [part.text for part in outcome.content] == [str(number) for number in range(64)]  # type: ignore[union-attr]


async def test_a_flood_on_the_result_channel_ends_the_tool(toolbox: ProcessToolbox) -> None:
    source = "import os\ndef tool():\n    while True: os.write(3, b'\\xff' * 100_000)"
    outcome = await run(toolbox, source, limits={"result_bytes": 10_000})
    assert "larger than the limit of 10000 bytes" in str(outcome.content)


async def test_secrets_do_not_come_out_again(toolbox: ProcessToolbox) -> None:
    source = """
import json, os, sys
def tool():
    key = os.environ["KEY"]
    print("out", key)
    print("err", key, file=sys.stderr)
    return {"key": key, "escaped": json.dumps(key), "short": os.environ["SHORT"]}
"""
    secret = 'pässword "quoted" \\ long'
    outcome = await run(toolbox, source, environment={"KEY": secret, "SHORT": "true"})
    whole = str(outcome.content) + "".join(outcome.stdout + outcome.stderr)
    assert "ssword" not in whole
    assert "quoted" not in whole
    assert '"short": "true"' in str(outcome.content)
    assert outcome.stdout == ("out [KEY]\n",)
    parts = await run(
        toolbox,
        "import os\ndef tool():\n    return [{'type': 'text', 'text': os.environ['KEY']}]",
        environment={"KEY": secret},
    )
    assert parts.content == (Text("[KEY]"),)
