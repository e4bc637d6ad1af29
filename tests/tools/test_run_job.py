"""How arguments reach a tool's function and results leave it, without a process: types, positions, generators.

The sources are ours, so they may run in the test's own process; `test_process` tests the same in a real one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.core.tools.call_arguments import parse_arguments
from holdfast.tools.inside.run_job import run_job
from holdfast.tools.schema.tool_schema import schema_from_source

DOC = '"""Do it."""'


def called(source: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    """Like a call by a model: check the arguments against the source's schema, then call the function."""
    schema = schema_from_source(source)
    checked = parse_arguments(json.dumps(arguments or {}), schema)
    job = {"name": schema["name"], "source_code": source, "arguments": checked, "agent_state": None}
    return run_job({**job, "result_bytes": 1_000_000})


def returned(source: str, arguments: dict[str, Any] | None = None) -> str:
    reply = called(source, arguments)
    assert reply["status"] == "success", reply
    return str(reply["content"])


@pytest.mark.parametrize(
    ("given", "seen"), [({}, "1 3"), ({"a": 5}, "5 3"), ({"b": 7}, "1 7"), ({"a": 5, "b": 7}, "5 7")]
)
def test_positional_parameters_keep_their_places(given: dict[str, Any], seen: str) -> None:
    assert returned(f"def f(a: int = 1, b: int = 3, /) -> str:\n    {DOC}\n    return f'{{a}} {{b}}'", given) == seen


@pytest.mark.parametrize(
    "source",
    [
        f"def f():\n    {DOC}\n    yield 1\n    yield 2",
        f"async def f():\n    {DOC}\n    yield 1\n    yield 2",
        f"def f():\n    {DOC}\n    return (number for number in (1, 2))",
        f"async def f():\n    {DOC}\n    return (number for number in (1, 2))",
        f"async def two():\n    return [1, 2]\nasync def f():\n    {DOC}\n    return two()",
        f"async def two():\n    return [1, 2]\ndef f():\n    {DOC}\n    return two()",
        f"def f():\n    {DOC}\n    return map(int, '12')",
        f"def f():\n    {DOC}\n    return range(1, 3)",
        f"def f():\n    {DOC}\n    return {{1: 0, 2: 0}}.keys()",
    ],
)
def test_what_comes_one_by_one_or_later_is_run_to_its_end(source: str) -> None:
    assert returned(source) == "[1, 2]"


def test_a_generator_that_fails_halfway_is_a_failure() -> None:
    reply = called(f"def f():\n    {DOC}\n    yield 1\n    raise ValueError('no more')")
    assert (reply["status"], "ValueError: no more" in reply["content"]) == ("error", True)


TYPES = """
import collections, decimal, pathlib, uuid
from collections.abc import Set
from dataclasses import dataclass
from enum import Enum
from typing import *
from pydantic import BaseModel, Field
class Item(BaseModel):
    n: int
class Box(TypedDict):
    item: Item
    spare: NotRequired[list[Item]]
class Pair(NamedTuple):
    left: Item
    right: int = 2
class Color(Enum):
    RED = "red"
class Aliased(BaseModel):
    size: int = Field(alias="theSize")
    width: Annotated[int, Field(validation_alias="theWidth")] = 1
"""


@pytest.mark.parametrize(
    ("hint", "given", "seen"),
    [
        ("Sequence[Item]", [{"n": 1}], "[Item(n=1)]"),
        ("Iterable[Item]", [{"n": 1}], "[Item(n=1)]"),
        ("collections.abc.Collection[Item]", [{"n": 1}], "[Item(n=1)]"),
        ("Set[int]", [1, 1], "{1}"),
        ("Mapping[str, Item]", {"a": {"n": 1}}, "{'a': Item(n=1)}"),
        ("Optional[Mapping[str, Item]]", {"a": {"n": 1}}, "{'a': Item(n=1)}"),
        ("collections.OrderedDict[str, Item]", {"a": {"n": 1}}, "OrderedDict({'a': Item(n=1)})"),
        ("collections.defaultdict[str, list[Item]]", {"a": [{"n": 1}]},
         "defaultdict(<class 'list'>, {'a': [Item(n=1)]})"),
        ("Box", {"item": {"n": 1}, "spare": [{"n": 2}]}, "{'item': Item(n=1), 'spare': [Item(n=2)]}"),
        ("Box | None", {"item": {"n": 1}}, "{'item': Item(n=1)}"),
        ("Pair", {"left": {"n": 1}}, "Pair(left=Item(n=1), right=2)"),
        ("list[Pair]", [{"left": {"n": 1}, "right": 5}], "[Pair(left=Item(n=1), right=5)]"),
        ("uuid.UUID", "12345678-1234-5678-1234-567812345678", "UUID('12345678-1234-5678-1234-567812345678')"),
        ("pathlib.Path", "a/b", "PosixPath('a/b')"),
        ("decimal.Decimal", 1.1, "Decimal('1.1')"),
        ("decimal.Decimal | None", 3, "Decimal('3')"),
        ("dict[int, Item]", {"1": {"n": 1}}, "{1: Item(n=1)}"),
        ("dict[Color, float]", {"red": 1}, "{<Color.RED: 'red'>: 1.0}"),
        ("Aliased", {"theSize": 3, "theWidth": 4}, "Aliased(size=3, width=4)"),
    ],
)  # fmt: skip
def test_the_call_delivers_the_types_that_the_schema_promises(hint: str, given: Any, seen: str) -> None:
    source = f"{TYPES}\ndef f(x: {hint}) -> str:\n    {DOC}\n    return repr(x)"
    shown = returned(source, {"x": given}).replace("OrderedDict([('a', Item(n=1))])", "OrderedDict({'a': Item(n=1)})")
    assert shown == seen


def test_a_key_that_is_no_number_is_told() -> None:
    reply = called(f"def f(x: dict[int, str]) -> str:\n    {DOC}\n    return repr(x)", {"x": {"one": "a"}})
    assert (reply["status"], "invalid literal for int()" in reply["content"]) == ("error", True)
