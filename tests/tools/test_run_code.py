"""`run_code`: a model's program runs in the sandbox, and its output is returned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.core.errors import TellTheModel
from holdfast.ports.toolbox import ToolJob, ToolOutcome
from holdfast.tools.builtin.run_code import RunCode
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox


async def run(toolbox: ProcessToolbox, code: str, language: str | None = "python") -> ToolOutcome:
    arguments = {"code": code} if language is None else {"code": code, "language": language}
    job = ToolJob("call", "run_code", "", arguments, "key", environment={"API_KEY": "sk-private"})
    return await RunCode(toolbox).run(replace(job, limits=replace(job.limits, wall_seconds=10)))


async def test_what_a_program_prints_comes_back(toolbox: ProcessToolbox) -> None:
    outcome = await run(toolbox, "for n in range(3):\n    print(n * n)")
    assert (outcome.status, outcome.content) == ("success", "0\n1\n4\n")


async def test_the_value_of_the_last_line_is_shown(toolbox: ProcessToolbox) -> None:
    assert (await run(toolbox, "x = 20\nx + 1", None)).content == "21\n"
    assert (await run(toolbox, "x = 20")).content == "The program printed nothing."


async def test_a_program_that_fails_says_where_and_keeps_what_it_printed(toolbox: ProcessToolbox) -> None:
    outcome = await run(toolbox, "print('before')\n1 / 0")
    assert outcome.status == "error"
    assert "ZeroDivisionError" in str(outcome.content)
    assert str(outcome.content).endswith("before\n")
    assert (await run(toolbox, "def f(:")).status == "error"


async def test_a_program_can_define_functions_that_call_each_other(toolbox: ProcessToolbox) -> None:
    code = "def fact(n):\n    return 1 if n < 2 else n * fact(n - 1)\nfact(5)"
    assert (await run(toolbox, code)).content == "120\n"


async def test_a_program_never_gets_the_agents_secrets(toolbox: ProcessToolbox) -> None:
    outcome = await run(toolbox, "import os\nprint(dict(os.environ))")
    assert "sk-private" not in str(outcome)


async def test_another_language_is_a_clear_error(toolbox: ProcessToolbox) -> None:
    with pytest.raises(TellTheModel, match="Only python"):
        await run(toolbox, "console.log(1)", "js")


async def test_a_parameter_without_an_annotation_gets_its_value_as_it_came(toolbox: ProcessToolbox) -> None:
    source = "from typing import Any\n\ndef f(a, b: Any, *, c=None):\n    return [a, b, c]\n"
    outcome = await toolbox.run(ToolJob("call", "f", source, {"a": 1, "b": {"x": [2]}, "c": "3"}, "key"))
    assert outcome.content == '[1, {"x": [2]}, "3"]'
