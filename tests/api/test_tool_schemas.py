"""Invalid tool schemas and tool rules are rejected with a text when they are sent, and do not fail later in a run."""

from typing import Any

import httpx
import pytest

SOURCE = 'def greet(name: str):\n    "Greet."'
FIELD = 'from pydantic import BaseModel, Field\nclass M(BaseModel):\n    n: int = Field({})\ndef f(x: M):\n    """D."""'
ENUM = 'from enum import Enum\nclass E(Enum):\n    A = {}\ndef f(x: E):\n    """D."""'


@pytest.mark.parametrize(
    "source",
    [
        ENUM.format("b'x'"),
        ENUM.format("{1, 2}"),
        FIELD.format("ge={1, 2}"),
        FIELD.format("description=5"),
        FIELD.format("ge=1e999"),
        'def f():\n    "\\ud800"',
        'def f():\n    "a\\0b"',
        'def f(x: Annotated[()]):\n    "D."',
        'def f(x: Optional[()]):\n    "D."',
    ],
)
def test_a_source_whose_schema_cannot_be_derived_is_refused(http: httpx.Client, source: str) -> None:
    refused = http.post("/v1/tools/", json={"source_code": source})
    assert refused.status_code == 400, refused.text
    assert http.post("/v1/tools/generate-schema", json={"code": source}).status_code == 400


@pytest.mark.parametrize("default", ["{1: 2}", "{'x': {1, 2}}", "[b'x']", "'\\ud800'", "9" * 60, "1e999", "'a\\0b'"])
def test_a_default_that_is_no_json_only_makes_its_parameter_optional(http: httpx.Client, default: str) -> None:
    made = http.post("/v1/tools/", json={"source_code": f'def f(x: object = {default}):\n    "D."'})
    assert made.json()["json_schema"]["parameters"]["properties"] == {"x": {"description": "x"}}
    assert made.json()["json_schema"]["parameters"]["required"] == []


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"description": 5}, "its description must be a text"),
        ({"parameters": 5}, "parameters must be an object"),
        ({"parameters": {"properties": []}}, "properties of parameters must be an object of schemas"),
        ({"parameters": {"properties": {"x": 5}}}, "parameters.x must be an object"),
        ({"parameters": {"properties": {"x": {"type": ["integer", 5]}}}}, "type of parameters.x must be a name"),
        ({"parameters": {"properties": {"x": {"type": {"a": 1}}}}}, "type of parameters.x must be a name"),
        ({"parameters": {"properties": {}, "required": "x"}}, "required of parameters must be a list of names"),
        ({"parameters": {"properties": {}, "required": [1, {}]}}, "required of parameters must be a list of names"),
        ({"parameters": {"properties": {"x": {"anyOf": "q"}}}}, "anyOf of parameters.x must be a list of schemas"),
        ({"parameters": {"properties": {"x": {"items": {"minimum": "a"}}}}}, "minimum of parameters.x.items"),
    ],
)
def test_a_schema_that_was_sent_must_be_one(http: httpx.Client, schema: dict[str, Any], says: str) -> None:
    refused = http.post("/v1/tools/", json={"source_code": SOURCE, "json_schema": schema})
    assert (refused.status_code, says in refused.json()["detail"]) == (400, True), refused.text


def test_schemas_that_double_at_every_level_are_refused(http: httpx.Client) -> None:
    levels = range(1, 40)
    both = [{"$ref": f"#/$defs/L{level - 1}"} for level in levels]
    defs = {f"L{level}": {"properties": {"a": ref, "b": ref}} for level, ref in zip(levels, both, strict=True)}
    arguments = {"properties": {"x": {"$ref": "#/$defs/L14"}}, "$defs": {"L0": {"type": "object"}, **defs}}
    refused = http.post("/v1/tools/", json={"source_code": SOURCE, "args_json_schema": arguments})
    assert (refused.status_code, "when its references are written out" in refused.text) == (400, True)
    fields = "".join(f"    {letter}: L{{under}}\n" for letter in "abcdefghij")
    classes = [f"class L{level}(BaseModel):\n{fields.format(under=level - 1)}" for level in range(1, 10)]
    source = f'class L0(BaseModel):\n    v: int\n{"".join(classes)}def f(x: L9):\n    "D."'
    refused = http.post("/v1/tools/", json={"source_code": source})
    assert (refused.status_code, "nested too deeply" in refused.text) == (400, True)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"type": "constrain_child_tools", "children": "abc"}, "children"),
        ({"type": "constrain_child_tools", "children": [1, None]}, "children"),
        ({"type": "parent_last_tool", "children": {"a": 1}}, "children"),
        ({"type": "constrain_child_tools", "children": ["b"], "child_arg_nodes": [{"args": {}}]}, "child_arg_nodes"),
        ({"type": "constrain_child_tools", "child_arg_nodes": [{"name": "b", "args": "z"}]}, "child_arg_nodes"),
        ({"type": "conditional", "child_output_mapping": ["a"]}, "child_output_mapping"),
        ({"type": "conditional", "child_output_mapping": {"a": 5}}, "child_output_mapping"),
        ({"type": "conditional", "default_child": 5}, "default_child"),
        ({"type": "run_first", "args": [1]}, "args"),
        ({"type": "max_count_per_step", "max_count_limit": -1}, "max_count_limit"),
        ({"type": "max_count_per_step", "max_count_limit": True}, "max_count_limit"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(http: httpx.Client, rule: dict[str, Any], says: str) -> None:
    agent = {"model": "demo/rehearsal", "include_base_tools": False, "tool_rules": [{"tool_name": "a", **rule}]}
    refused = http.post("/v1/agents/", json=agent)
    assert (refused.status_code, f"The {says} of the" in refused.text) == (400, True), refused.text
