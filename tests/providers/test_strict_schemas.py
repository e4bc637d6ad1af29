"""Strict tool schemas: closed, everything required, optional parameters nullable."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.core.tools.call_arguments import parse_arguments
from holdfast.providers.encoding.strict_schemas import ANTHROPIC, OPENAI, strict_schema
from holdfast.tools.schema.tool_schema import schema_from_source

SOURCE = '''
class P(BaseModel):
    a: int
    b: str = "x"
def f(x: int, p: P, y: str = "a", z: Literal["q"] = "q", n: int | None = None, l: list[P] | str = "w"):
    """D."""
'''


def test_everything_is_required_and_optional_parameters_are_nullable() -> None:
    made = strict_schema(schema_from_source(SOURCE)["parameters"], ANTHROPIC)
    assert made is not None
    assert made["required"] == ["x", "p", "y", "z", "n", "l"]
    assert made["additionalProperties"] is False
    properties = made["properties"]
    assert properties["x"] == {"type": "integer", "description": "x"}
    assert properties["y"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "y"}
    assert properties["z"]["anyOf"] == [{"type": "string", "enum": ["q"]}, {"type": "null"}]
    assert properties["n"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert properties["p"]["additionalProperties"] is False
    assert properties["p"]["properties"]["b"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    [listed, text, null] = properties["l"]["anyOf"]
    assert (listed["items"]["required"], text, null) == (["a", "b"], {"type": "string"}, {"type": "null"})
    assert "default" not in json.dumps(made)


def test_a_null_that_strict_mode_made_the_model_write_is_not_given_to_the_tool() -> None:
    said = {"x": 1, "p": {"a": 1, "b": None}, "y": None, "z": None, "n": None, "l": None}
    checked = parse_arguments(json.dumps(said), schema_from_source(SOURCE))
    assert checked == {"x": 1, "p": {"a": 1}, "n": None}


def of(schema: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"n": schema}, "required": list(required)}


@pytest.mark.parametrize(
    "schema",
    [
        of({"type": "object"}, "n"),
        of({"type": "object", "additionalProperties": {"type": "string"}}, "n"),
        of({}, "n"),
        of({"type": "array", "items": {}}, "n"),
        of({"$ref": "#/$defs/x"}, "n"),
        of({"oneOf": [{"type": "string"}]}, "n"),
        of({"type": "string", "minLength": 3}, "n"),
        of({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 5}),
        {**of({"type": "integer"}, "n"), "additionalProperties": True},
        {**of({"type": "integer"}, "n"), "$defs": {}},
    ],
)
def test_some_schemas_have_no_strict_form(schema: dict[str, Any]) -> None:
    assert strict_schema(schema, OPENAI) is None


def test_bounds_are_for_vendors_that_take_them() -> None:
    bounded = of({"type": "integer", "minimum": 1}, "n")
    assert strict_schema(bounded, ANTHROPIC) is None
    assert strict_schema(bounded, OPENAI) == {**bounded, "additionalProperties": False}
