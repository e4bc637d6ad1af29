"""Tests of call arguments: what is accepted, what is converted, and what the model is told."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from holdfast.core.errors import TellTheModel
from holdfast.core.tools import call_arguments, json_schema
from holdfast.core.tools.call_arguments import as_the_tool_gets_them, parse_arguments

SCHEMA: dict[str, Any] = {
    "name": "order",
    "parameters": {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 1, "maximum": 9},
            "size": {"type": "string", "enum": ["s", "l"]},
            "code": {"type": "string", "pattern": "^[A-Z]+$", "minLength": 2, "maxLength": 3},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "where": {"$ref": "#/$defs/Place"},
            "open": {"type": "object", "additionalProperties": {"type": "number"}},
            "either": {"oneOf": [{"type": "integer"}, {"type": "boolean"}]},
            "maybe": {"type": "string", "nullable": True},
        },
        "required": ["count"],
        "$defs": {
            "Place": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            }
        },
    },
}


def told(text: str, schema: dict[str, Any] = SCHEMA) -> str:
    with pytest.raises(TellTheModel) as caught:
        parse_arguments(text, schema)
    return str(caught.value)


def test_arguments_that_fit_come_back_as_values() -> None:
    given = {"count": 2, "size": "l", "tags": ["a"], "note": None, "where": {"city": "Ulm"}, "open": {"a": 1.5}}
    assert parse_arguments(json.dumps(given), SCHEMA) == given


def test_the_bare_parameters_are_a_schema_too() -> None:
    assert parse_arguments('{"count": 1}', SCHEMA["parameters"]) == {"count": 1}


@pytest.mark.parametrize("text", ["", "  \n", "{}"])
def test_no_text_is_no_arguments(text: str) -> None:
    assert parse_arguments(text, {"type": "object", "properties": {}}) == {}


def test_a_whole_float_is_an_integer_and_stays_one() -> None:
    parsed = parse_arguments('{"count": 3.0}', SCHEMA)
    assert type(parsed["count"]) is int


def test_an_object_inside_a_json_string_is_taken_out() -> None:
    assert parse_arguments(json.dumps('{"count": 1}'), SCHEMA) == {"count": 1}


def test_null_for_an_optional_argument_means_left_out() -> None:
    assert parse_arguments('{"count": 1, "size": null, "maybe": null}', SCHEMA) == {"count": 1, "maybe": None}


def test_names_that_models_add_by_habit_are_dropped_unless_the_schema_knows_them() -> None:
    habit = '{"count": 1, "request_heartbeat": true, "inner_thoughts": "hm", "thinking": "hm"}'
    assert parse_arguments(habit, SCHEMA) == {"count": 1}
    knows = {"type": "object", "properties": {"thinking": {"type": "string"}}}
    assert parse_arguments('{"thinking": "hm"}', knows) == {"thinking": "hm"}


def test_a_schema_without_properties_takes_any_names() -> None:
    assert parse_arguments('{"x": 1}', {"type": "object"}) == {"x": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"count": 1', ["not valid JSON", "line 1"]),
        ("[1]", ["must be one JSON object"]),
        ('{"count": NaN}', ["NaN is not a JSON value"]),
        ('{"count": 1, "count": 2}', ["'count' is given twice"]),
        ("{}", ["count is required but missing"]),
        ('{"count": "1"}', ["count must be of type integer, not string"]),
        ('{"count": true}', ["not boolean"]),
        ('{"count": 3.5}', ["count must be of type integer, not number"]),
        ('{"count": 10}', ["count must be at most 9"]),
        ('{"count": 1, "size": "m"}', ["size must be one of 's', 'l'"]),
        ('{"count": 1, "code": "ab"}', ["code must match"]),
        ('{"count": 1, "code": "ABCD"}', ["at most 3 characters"]),
        ('{"count": 1, "tags": ["a", 2]}', ["tags[1] must be of type string"]),
        ('{"count": 1, "tags": ["a", "b", "c"]}', ["at most 2 items"]),
        ('{"count": 1, "tags": "[__import__(\'os\')]"}', ["tags must be of type array, not string"]),
        ('{"count": 1, "note": 5}', ["note must be of type string, not integer"]),
        ('{"count": 1, "where": {}}', ["where.city is required"]),
        ('{"count": 1, "where": {"city": "U", "x": 1}}', ["where.x is unknown; known are 'city'"]),
        ('{"count": 1, "open": {"a": "b"}}', ["open.a must be of type number"]),
        ('{"count": 1, "either": "x"}', ["fits none of the allowed forms"]),
        ('{"count": 1, "__class__\\n": 1}', ["is unknown"]),
        ('{"count": 1, "note": "a\\u0000"}', ["NUL"]),
        ('{"count": 1, "note": "\\ud800"}', ["surrogate"]),
        ('{"count": ' + "9" * 5000 + "}", ["not valid JSON"]),
    ],
)  # fmt: skip
def test_a_fault_is_told_with_its_place(text: str, words: list[str]) -> None:
    message = told(text)
    assert all(word in message for word in words), message


def test_all_faults_are_told_at_once_up_to_a_limit() -> None:
    message = told(json.dumps({f"x{number}": 1 for number in range(9)}))
    assert message.count("is unknown") == call_arguments.MAX_FAULTS_SHOWN
    assert "and 5 more" in message


@pytest.mark.parametrize("depth", [call_arguments.MAX_DEPTH + 1, 100_000])
def test_depth_is_bounded(depth: int) -> None:
    text = '{"open": ' + "[" * depth + "]" * depth + "}"
    assert "nested deeper" in told(text)


def test_size_is_bounded() -> None:
    assert "larger than" in told('{"note": "' + "a" * call_arguments.MAX_CHARACTERS + '"}')


def test_a_reference_to_itself_ends() -> None:
    assert parse_arguments('{"a": 1}', {"properties": {"a": {"$ref": "#/properties/a"}}}) == {"a": 1}


SLOW_PATTERNS = [
    "^(a+)+$",
    r"^\w*\w*\w*\w*\w*\w*$",
    r"\w+\w+\w+\w+$",
    "^" + "a?" * 40 + "b$",
    "^(a|a)(a|a)" + "(a|a)" * 30 + "$",
    "^(a?){40}$",
    r"^(\w*)\1\1$",
    "^(?=(a*)*$)",
]


@pytest.mark.parametrize("pattern", SLOW_PATTERNS)
def test_a_pattern_that_could_take_for_ever_is_left_to_the_tool(pattern: str) -> None:
    evil = {"properties": {"a": {"type": "string", "pattern": pattern}}}
    text = "a" * 80 + "!"
    assert parse_arguments(json.dumps({"a": text}), evil) == {"a": text}


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        (r"^\d{4}-\d{2}-\d{2}$", "2026-11-16", "2026-11-1"),
        (r"^[^@\s]+@[^@\s]+$", "a@example.org", "a@b@c"),
        ("^(red|green|blue)$", "green", "greenish"),
        ("^(?:ab)?c{2,3}[.]?$", "abcc", "abc"),
        (r"\.pdf$", "a.pdf", "a.pdf.exe"),
        ("^[]x-]+$", "x-]", "y"),
    ],
)
def test_a_plain_pattern_is_checked(pattern: str, fits: str, does_not: str) -> None:
    schema = {"properties": {"a": {"type": "string", "pattern": pattern}}}
    assert parse_arguments(json.dumps({"a": fits}), schema) == {"a": fits}
    assert "must match the pattern" in told(json.dumps({"a": does_not}), schema)


SAME_TWICE = {"anyOf": [{"$ref": "#/$defs/node"}, {"$ref": "#/$defs/node"}]}
DOUBLING = {
    "properties": {"a": {"$ref": "#/$defs/node"}},
    "$defs": {"node": {"properties": {"next": SAME_TWICE, "word": {"type": "string"}}}},
}


def test_a_schema_that_doubles_the_work_at_every_level_refuses_in_time() -> None:
    """Without a bound this would take 2 to the 60th steps: no time bound of ours is needed for it to be seen."""
    value: dict[str, Any] = {"word": 1}
    for _ in range(60):
        value = {"next": value}
    assert f"cannot be checked in {json_schema.MAX_STEPS} steps" in told(json.dumps({"a": value}), DOUBLING)


@pytest.mark.parametrize(
    "inner",
    [
        {"enum": [f"word {number}" for number in range(20_000)]},
        {"type": "object", "required": [f"word {number}" for number in range(20_000)]},
        {"allOf": [{"type": "object"}] * 20_000},
        {"pattern": "^" + "a?" * 9 + "$"},
    ],
)
def test_a_long_list_times_a_long_schema_is_refused_in_time(inner: dict[str, Any]) -> None:
    schema = {"properties": {"a": {"type": "array", "items": inner}}}
    item: Any = "a" * 40 + "!" if "pattern" in inner else {}
    assert f"cannot be checked in {json_schema.MAX_STEPS} steps" in told(json.dumps({"a": [item] * 5_000}), schema)


def test_a_list_as_long_as_models_write_is_checked_whole() -> None:
    schema = {"properties": {"a": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}}}}
    assert "a[2999] must match" in told(json.dumps({"a": ["abc"] * 2_999 + ["9"]}), schema)


def test_a_schema_nested_past_the_stack_is_a_fault_and_no_crash() -> None:
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(20_000):
        deep = {"allOf": [deep]}
    assert "cannot be checked" in told('{"a": 1}', {"properties": {"a": deep}})


def test_faults_of_options_in_options_stay_short() -> None:
    value: dict[str, Any] = {"word": 1}
    for _ in range(8):
        value = {"next": value}
    assert len(told(json.dumps({"a": value}), DOUBLING)) < 2_000


LONG = "x" * 190_000


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        ({"a": {"type": "array", "items": {"enum": [LONG]}}}, {"a": [0] * 9_000}),
        ({"a": {"type": "array", "items": {"const": [0] * 15_000}}}, {"a": [0] * 9_000}),
        ({f"p{n}": {} for n in range(9_000)}, {f"q{n}": 0 for n in range(50_000)}),
        ({"a": {"type": "array", "items": {"$ref": "#/" + "x/" * 90_000}}}, {"a": [0] * 9_000}),
        ({"a": {"type": "array", "items": {"required": [LONG]}}}, {"a": [{}] * 6_000}),
        ({"a": {"type": "array", "items": {"anyOf": [{"const": LONG}, {"const": 1}]}}}, {"a": [0] * 4_000}),
        (
            {f"a{n}": {"type": "string", "pattern": "^" + f"[{chr(256 + n)}-\uffff]" * 39} for n in range(195)},
            {f"a{n}": "abc" for n in range(195)},
        ),
    ],
    ids=["enum", "const", "unknown names", "reference", "required", "options", "patterns"],
)
def test_a_schema_that_is_expensive_to_check_is_refused_soon(schema: dict[str, Any], given: dict[str, Any]) -> None:
    began = time.thread_time()
    with pytest.raises(TellTheModel, match="cannot be checked"):
        parse_arguments(json.dumps(given), {"type": "object", "properties": schema})
    assert time.thread_time() - began < 1.0  # seconds and minutes before; 0.1 on a quiet machine


def test_arguments_with_very_many_values_are_refused_before_they_are_read() -> None:
    with pytest.raises(TellTheModel, match="more than 60000 values"):
        parse_arguments(json.dumps({"a": [0] * 70_000}), {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"x": null}', "{}"),
        ('{"x": 2.0}', '{"x":2}'),
        ('{"x": 1, "thinking": "hm"}', '{"x":1}'),
        ('{"x":  1}', '{"x":  1}'),
        ('{"x": "one"}', '{"x": "one"}'),
        ("{broken", "{broken"),
        ('"{\\"x\\": 1}"', '{"x":1}'),
    ],
)
def test_arguments_are_written_out_as_the_tool_gets_them(text: str, expected: str) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert as_the_tool_gets_them(text, schema) == expected
