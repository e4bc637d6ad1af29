"""Tests of a tool's own limits: which values are accepted, and which are refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import Invalid
from holdfast.core.tools.tool_limits import LIMITS, own_limits
from holdfast.ports.toolbox import ToolLimits


@pytest.mark.parametrize("metadata", [None, {}, {"limits": None}, {"limits": {}}, {"other": 1}])
def test_a_tool_that_says_nothing_has_no_limits_of_its_own(metadata: dict[str, Any] | None) -> None:
    assert own_limits(metadata) == {}


def test_every_limit_of_the_toolbox_can_be_set_by_a_tool_and_its_default_is_allowed() -> None:
    defaults = {name: getattr(ToolLimits(), name) for name in ToolLimits.__slots__}
    assert set(defaults) == set(LIMITS)
    assert own_limits({"limits": defaults}) == defaults


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ([], "must be an object"),
        ({"wall": 1}, "There is no limit 'wall'"),
        ({"wall_seconds": 0}, "wall_seconds must be a number from 0.1 to 86400, not 0"),
        ({"wall_seconds": True}, "not True"),
        ({"processes": 1.5}, "processes must be a whole number"),
        ({"memory_bytes": 1}, "memory_bytes must be a whole number from"),
        ({"open_files": "12"}, "not '12'"),
    ],
)
def test_what_is_no_limit_is_refused_by_name(limits: Any, words: str) -> None:
    with pytest.raises(Invalid, match=words.replace("(", r"\(")):
        own_limits({"limits": limits})
