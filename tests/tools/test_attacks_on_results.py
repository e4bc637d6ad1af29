"""Tools that say too much, say what is no text, or say it in somebody else's name."""

from __future__ import annotations

import resource

import pytest

from holdfast.core.messages import Text
from holdfast.tools.process import ProcessToolbox

from .processes import run


@pytest.mark.parametrize("stream", [1, 2])
@pytest.mark.parametrize("chunk", ["b'x' * 1_000_000", "b'line\\n' * 200_000", "b'\\xff\\x00' * 500_000"])
async def test_13_floods_are_cut_and_the_servers_memory_stays_flat(
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
async def test_14_a_result_that_is_none_is_a_clean_error(toolbox: ProcessToolbox, expression: str, words: str) -> None:
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


@pytest.mark.parametrize(
    "frame",
    [
        b'{"status": "success", "content": "a", "content": "b"}',
        b'{"status": "success", "content": "\\u0000"}',
        b'{"status": "success", "content": {"deep": 1}}',
        b'{"status": "success", "\\u0000": 1}',
        b'{"status": "root", "content": "x"}',
        b"[" * 100_000,
        b"NaN",
        b"",
    ],
)
async def test_16_a_frame_that_the_tool_wrote_by_itself_is_its_own_result_or_none(
    toolbox: ProcessToolbox, frame: bytes
) -> None:
    source = f"import os\ndef tool():\n    os.write(3, {len(frame).to_bytes(4, 'big') + frame!r})\n    os._exit(0)"
    outcome = await run(toolbox, source)
    if b'"b"' in frame:
        assert outcome.content == "b"
    else:
        assert "tool ended without a result" in str(outcome.content)
    assert (await run(toolbox, "def tool():\n    return 1")).content == "1"


async def test_16_a_flood_on_the_result_channel_ends_the_tool(toolbox: ProcessToolbox) -> None:
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
