"""A tool's imports decide which zygote it is forked from, and that only affects speed."""

from __future__ import annotations

import pytest

from holdfast.tools.sandbox.preload import FULL, PLAIN, preload_for
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

from .processes import run


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def tool(): return 1", PLAIN),
        ("import os, json as j\nfrom typing import Any, Optional\ndef tool(): return 1", PLAIN),
        ("def tool():\n    from datetime import date\n    return date.today()", PLAIN),
        ("def tool(", PLAIN),
        ("async def tool(): return 1", FULL),
        ("from pydantic import BaseModel\ndef tool(): return 1", FULL),
        ("import os, urllib.request\ndef tool(): return 1", FULL),
        ("def tool():\n    import requests\n    return 1", FULL),
    ],
)
def test_only_tools_with_slow_imports_get_the_full_zygote(source: str, expected: tuple[str, ...]) -> None:
    assert preload_for(source) == expected


async def test_a_small_tool_carries_nothing_that_it_does_not_use(toolbox: ProcessToolbox) -> None:
    held = "import sys\ndef tool():\n    return [name in sys.modules for name in ('asyncio', 'pydantic', 'ssl', 'bz2')]"
    assert (await run(toolbox, held)).content == "[false, false, false, false]"


async def test_a_module_that_was_not_foreseen_is_imported_in_the_cell(toolbox: ProcessToolbox) -> None:
    hidden = "def tool():\n    return __import__('asyncio').run(__import__('asyncio').sleep(0, 'slept'))"
    assert preload_for(hidden) == PLAIN
    assert (await run(toolbox, hidden)).content == "slept"
