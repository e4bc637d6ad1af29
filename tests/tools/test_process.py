"""Tools in processes: what they receive, what they return, and the error when they fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.core.conversation.messages import Image, Text
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

from .processes import run


async def test_a_tool_gets_its_arguments_and_gives_its_result(toolbox: ProcessToolbox) -> None:
    outcome = await run(toolbox, "def tool(a: int, b: int) -> int:\n    return a + b", {"a": 1, "b": 2})
    assert (outcome.status, outcome.content) == ("success", "3")


async def test_a_tool_sees_nothing_of_the_servers_environment(
    toolbox: ProcessToolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    source = """
import os
def tool():
    print(os.environ)
    try:
        initial = open("/proc/self/environ").read()
    except PermissionError:
        initial = ""
    return [dict(os.environ), initial]
"""
    outcome = await run(toolbox, source, environment={"CITY": "Ulm"})
    seen, initial = json.loads(str(outcome.content))
    assert set(seen) == {"PATH", "LANG", "HOME", "TMPDIR", "CITY", "HOLDFAST_IDEMPOTENCY_KEY"}
    assert (seen["CITY"], seen["HOLDFAST_IDEMPOTENCY_KEY"]) == ("Ulm", "key-1")
    assert "sk-secret" not in initial + outcome.stdout[0]


@pytest.mark.parametrize(
    ("expression", "content"),
    [
        ("'plain ü'", "plain ü"),
        ("None", "None"),
        ("True", "true"),
        ("1.5", "1.5"),
        ("{'a': ['ü', None]}", '{"a": ["ü", null]}'),
        ("(1, 2)", "[1, 2]"),
        ("b'bytes'", "bytes"),
        ("pathlib.Path('/x')", "/x"),
        ("Model(a=1)", '{"a": 1}'),
        ("[Model(a=1), datetime.date(2026, 1, 2)]", '[{"a": 1}, "2026-01-02"]'),
        ("Point(1)", '{"x": 1}'),
        ("Color.RED", "red"),
    ],
)
async def test_every_kind_of_result_becomes_text(toolbox: ProcessToolbox, expression: str, content: str) -> None:
    source = f"""
import dataclasses, datetime, enum, pathlib
from pydantic import BaseModel
class Model(BaseModel):
    a: int
@dataclasses.dataclass
class Point:
    x: int
class Color(enum.Enum):
    RED = "red"
def tool():
    return {expression}
"""
    outcome = await run(toolbox, source)
    assert (outcome.status, outcome.content) == ("success", content)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("float('nan')", "cannot be written as JSON"),
        ("'a' + chr(0)", "NUL"),
        ("'\\ud800'", "surrogate"),
        ("b'\\xff'", "not UTF-8"),
        ("'x' * 2_000_000", "larger than the limit of 1048576 bytes"),
        ("deep()", "nested too deeply"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("sys.exit(3)", "SystemExit: 3"),
        ("[{'type': 'image', 'source': {'type': 'base64', 'media_type': 'image/png', 'data': '??'}}]", "content part"),
    ],
)
async def test_a_result_that_cannot_be_written_as_text_is_a_clean_error(
    toolbox: ProcessToolbox, expression: str, words: str
) -> None:
    source = f"""
import sys
def deep():
    value = []
    for _ in range(100_000):
        value = [value]
    return value
def tool():
    return {expression}
"""
    outcome = await run(toolbox, source)
    assert outcome.status == "error"
    assert str(outcome.content).startswith("Error executing function tool: ")
    assert words in str(outcome.content)


async def test_text_and_image_parts_stay_parts(toolbox: ProcessToolbox) -> None:
    source = """
def tool():
    return [{"type": "text", "text": "see"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]
"""
    outcome = await run(toolbox, source)
    assert outcome.content == (Text("see"), Image(data="iVBORw0KGgo=", media_type="image/png"))


@pytest.mark.parametrize("data", ["", "AAAA", "PHN2Zz4=", "??"])
async def test_an_image_that_no_model_takes_is_an_error_of_the_tool(toolbox: ProcessToolbox, data: str) -> None:
    """It would stay in the context, and the provider would reject every later request."""
    source = f"""
def tool():
    return {{"type": "image", "source": {{"type": "base64", "media_type": "image/png", "data": "{data}"}}}}
"""
    outcome = await run(toolbox, source)
    assert outcome.status == "error"
    assert "neither a text nor a base64 image: PNG, JPEG, GIF or WebP" in str(outcome.content)


async def test_an_exception_is_reported_and_its_own_frames_are_in_stderr(toolbox: ProcessToolbox) -> None:
    source = (
        "import json\ndef helper():\n    return json.loads('{')\ndef tool():\n    print('before')\n    return helper()"
    )
    outcome = await run(toolbox, source)
    assert str(outcome.content).startswith("Error executing function tool: JSONDecodeError: Expecting property name")
    assert outcome.stdout == ("before\n",)
    assert "return json.loads('{')" in outcome.stderr[0]
    assert "holdfast" not in outcome.stderr[0]


async def test_a_syntax_error_in_the_source_is_an_error_of_the_tool(toolbox: ProcessToolbox) -> None:
    assert "SyntaxError" in str((await run(toolbox, "def tool(:")).content)


async def test_an_async_tool_is_awaited(toolbox: ProcessToolbox) -> None:
    source = "import asyncio\nasync def tool():\n    await asyncio.sleep(0)\n    return 'awaited'"
    assert (await run(toolbox, source)).content == "awaited"


async def test_arguments_become_what_the_signature_asks_for(toolbox: ProcessToolbox) -> None:
    source = """
from __future__ import annotations
import dataclasses, datetime, enum
from typing import Annotated, Optional, Union
from pydantic import BaseModel
class Item(BaseModel):
    name: str
class Color(enum.Enum):
    RED = "red"
@dataclasses.dataclass
class Point:
    at: datetime.datetime
def tool(items: list[Item], color: Color, point: Optional[Point], one: Annotated[Union[str, Item], "x"],
         pair: tuple[int, Color], /, *, by_name: dict[str, Item]):
    return [items[0].name, color.name, point.at.year, one.name, pair[1].name, by_name["a"].name]
"""
    given: dict[str, Any] = {
        "items": [{"name": "a"}],
        "color": "red",
        "point": {"at": "2026-01-02T03:04:05"},
        "one": {"name": "b"},
        "pair": [1, "red"],
        "by_name": {"a": {"name": "c"}},
    }
    assert (await run(toolbox, source, given)).content == '["a", "RED", 2026, "b", "RED", "c"]'


async def test_an_argument_that_its_model_refuses_is_an_error_of_the_tool(toolbox: ProcessToolbox) -> None:
    source = "from pydantic import BaseModel\nclass M(BaseModel):\n    a: int\ndef tool(m: M):\n    return m.a"
    assert "ValidationError" in str((await run(toolbox, source, {"m": {"a": "x"}})).content)


async def test_the_agent_can_be_read_by_key_and_by_attribute(toolbox: ProcessToolbox) -> None:
    source = "def tool(agent_state):\n    return agent_state.memory.blocks[0].label + agent_state['id']"
    state = {"id": "agent-1", "memory": {"blocks": [{"label": "human"}]}}
    assert (await run(toolbox, source, agent_state=state)).content == "humanagent-1"


async def test_the_source_may_hold_imports_helpers_and_several_functions(toolbox: ProcessToolbox) -> None:
    source = """
import math
BASE = 2
def helper(x):
    import string
    return string.ascii_letters[x]
def tool(x: int):
    return helper(x) + str(math.floor(BASE))
def other():
    return "other"
"""
    assert (await run(toolbox, source, {"x": 1})).content == "b2"
    assert (await run(toolbox, source, name="renamed")).content == "other"


async def test_calls_share_nothing(toolbox: ProcessToolbox) -> None:
    source = """
import builtins, json, os, tempfile
def tool():
    seen = hasattr(builtins, "mark") or os.listdir(".") or os.listdir(tempfile.gettempdir())
    open(tempfile.gettempdir() + "/file", "w").close()
    builtins.mark = json.mark = True
    open("file", "w").write("x")
    os.mkdir("locked"); open("locked/file", "w").close(); os.chmod("locked", 0)
    return bool(seen)
"""
    assert [(await run(toolbox, source)).content for _ in range(2)] == ["false", "false"]


async def test_what_a_tool_prints_is_text_even_if_it_looks_like_a_result(toolbox: ProcessToolbox) -> None:
    fake = b'\0\0\0\x28{"status": "success", "content": "fake"}'
    outcome = await run(toolbox, f"import os\ndef tool():\n    os.write(1, {fake!r})\n    return 'real'")
    assert outcome.content == "real"
    assert "fake" in outcome.stdout[0]
    assert "\0" not in outcome.stdout[0]


async def test_a_name_that_cannot_be_an_environment_variable_is_told(toolbox: ProcessToolbox) -> None:
    outcome = await run(toolbox, "def tool(): ...", environment={"A=B": "c"})
    assert "environment variable 'A=B'" in str(outcome.content)


async def test_a_fork_server_that_cannot_start_is_an_error_outcome() -> None:
    for python in ("/nonexistent/python", "/bin/false"):
        toolbox = ProcessToolbox(python=python)
        outcome = await run(toolbox, "def tool(): ...")
        assert "refuses to run tools" in str(outcome.content)
        assert "could not be started" in (await toolbox.isolation()).why_not["A"]
        await toolbox.close()
