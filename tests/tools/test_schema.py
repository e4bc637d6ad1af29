"""Schemas from source: the ways in which authors write tools, and the errors for what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import Invalid
from holdfast.tools.schema import tool_schema as schemas
from holdfast.tools.schema.tool_schema import schema_from_args_model, schema_from_source


def parameter(hint: str, before: str = "") -> dict[str, Any]:
    """The schema of a parameter with that hint, without its description."""
    made = schema_from_source(f'{before}\ndef f(x: {hint}):\n    """Does it."""\n')
    properties: dict[str, Any] = made["parameters"]["properties"]["x"]
    return {key: value for key, value in properties.items() if key != "description"}


def test_a_function_becomes_a_schema() -> None:
    source = '''
def roll(sides: int, times: int = 1) -> str:
    """Rolls dice.

    Args:
        sides: How many sides.
    """
    return "4"
'''
    assert schema_from_source(source) == {
        "name": "roll",
        "description": "Rolls dice.",
        "parameters": {
            "type": "object",
            "properties": {
                "sides": {"type": "integer", "description": "How many sides."},
                "times": {"type": "integer", "description": "times", "default": 1},
            },
            "required": ["sides"],
        },
    }


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("str", {"type": "string"}),
        ("float", {"type": "number"}),
        ("bool", {"type": "boolean"}),
        ("None", {"type": "null"}),
        ("Any", {}),
        ("list", {"type": "array", "items": {}}),
        ("List[int]", {"type": "array", "items": {"type": "integer"}}),
        ("dict[str, list]", {"type": "object", "additionalProperties": {"type": "array", "items": {}}}),
        ("typing.Dict", {"type": "object"}),
        ("set[str]", {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        ("tuple[int, ...]", {"type": "array", "items": {"type": "integer"}}),
        ("tuple[int, int]", {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}),
        ("Optional[int]", {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        ("int | str | None", {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}),
        ("Union[int, Optional[str]]", {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}),
        ("'int'", {"type": "integer"}),
        ("Literal['a', 'b']", {"type": "string", "enum": ["a", "b"]}),
        ("Literal['a', 1]", {"enum": ["a", 1]}),
        ("datetime.datetime", {"type": "string", "format": "date-time"}),
        ("Annotated[int, Field(ge=1, le=9)]", {"type": "integer", "minimum": 1, "maximum": 9}),
    ],
)  # fmt: skip
def test_a_type_hint_becomes_a_json_schema(hint: str, expected: dict[str, Any]) -> None:
    assert parameter(hint) == expected


def test_names_imported_under_another_name_and_aliases_are_followed() -> None:
    before = (
        "from datetime import datetime as dt\nfrom typing import Optional as Maybe, Literal\nLevel = Literal['a']\n"
    )
    assert parameter("Maybe[dt]", before)["anyOf"][0]["format"] == "date-time"
    assert parameter("Level", before) == {"type": "string", "enum": ["a"]}


def test_an_enum_of_the_source_gives_its_values() -> None:
    before = "class Color(str, Enum):\n    RED = 'red'\n    BLUE = 'blue'\n"
    assert parameter("Color", before) == {"type": "string", "enum": ["red", "blue"]}
    assert parameter("N", "class N(Enum):\n    A = auto()\n    B = auto()\n") == {"type": "integer", "enum": [1, 2]}


def test_a_pydantic_model_of_the_source_becomes_a_nested_object() -> None:
    before = '''
class Base(BaseModel):
    id: int = Field(..., description="Its number", ge=1)
class Item(Base):
    """One thing."""
    model_config = {}
    name: str = Field(default="x", description="Its name")
    tags: list[str] = Field(default_factory=list, max_length=3)
    price: Optional[float] = None
'''
    assert parameter("list[Item]", before)["items"] == {
        "type": "object",
        "description": "One thing.",
        "properties": {
            "id": {"type": "integer", "description": "Its number", "minimum": 1},
            "name": {"type": "string", "default": "x", "description": "Its name"},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
            "price": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        },
        "required": ["id"],
    }


def test_dataclasses_and_typed_dicts_of_the_source_are_read_too() -> None:
    before = """
@dataclass(frozen=True)
class Point:
    x: int
    y: int = field(default=0)
class Options(TypedDict, total=False):
    deep: bool
    name: Required[str]
"""
    assert parameter("Point", before)["required"] == ["x"]
    assert parameter("Options", before)["required"] == ["name"]


def test_a_class_that_contains_itself_is_cut_off() -> None:
    made = parameter("Node", "class Node(BaseModel):\n    left: Optional['Node'] = None\n")
    assert made["properties"]["left"]["anyOf"][0]["type"] == "object"


def test_annotated_describes_a_parameter_before_the_docstring_does() -> None:
    source = """
def f(a: Annotated[int, "by hint"], b: Annotated[str, Field(description="by field")]):
    '''D.

    Args:
        a: by docstring
    '''
"""
    properties = schema_from_source(source)["parameters"]["properties"]
    assert (properties["a"]["description"], properties["b"]["description"]) == ("by hint", "by field")


def test_the_last_top_level_function_is_the_tool_unless_one_is_named() -> None:
    source = 'import os\ndef a():\n    """A."""\nclass C:\n    def inner(self): ...\nasync def b():\n    """B."""\n'
    assert schema_from_source(source)["name"] == "b"
    assert schema_from_source(source, "a")["description"] == "A."


def test_parameters_that_the_server_fills_are_left_out() -> None:
    source = 'def f(self, agent_state, x: int, *, request_heartbeat=False):\n    """D."""\n'
    assert list(schema_from_source(source)["parameters"]["properties"]) == ["x"]


def test_a_given_description_stands_in_for_the_docstring() -> None:
    assert schema_from_source("def f(): ...", description="Does it.")["description"] == "Does it."


def test_nothing_of_the_source_is_ever_executed(tmp_path: Any) -> None:
    mark = tmp_path / "executed"
    touch = f"open({str(mark)!r}, 'w')"
    source = f'{touch}\n@(lambda f: {touch})\ndef f(x: int = {touch}, y: "int" = 1) -> {touch}:\n    """D."""\n'
    made = schema_from_source(source)
    assert made["parameters"]["required"] == []
    assert "default" not in made["parameters"]["properties"]["x"]
    assert not mark.exists()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('def f(x):\n    """D."""\n', ["Parameter x of function f", "no type hint", "x: str"]),
        ("def f(x: int): ...", ["Function f has no description", "docstring"]),
        ('def f(*args: int):\n    """D."""\n', ["*args", "named parameters"]),
        ('def f(**kw: int):\n    """D."""\n', ["*kw"]),
        ('def f(x: numpy.ndarray):\n    """D."""\n', ["Parameter x of function f", "numpy.ndarray"]),
        ('class P: ...\ndef f(x: P):\n    """D."""\n', ["P is a plain class"]),
        ("x = 1\ndef f(:\n", ["syntax error in line 2"]),
        ("x = 1\n", ["no function"]),
        ("def f(): ...\n\0", ["null bytes"]),
        (f'def {"f" * 65}():\n    """D."""\n', ["1 to 64"]),
        (f"{'(' * 5000}{')' * 5000}\n", ["The tool's source"]),
        ("#" * (schemas.SOURCE_BYTES + 1), ["larger than"]),
        ('A = list[A]\ndef f(x: A):\n    """D."""\n', ["nested too deeply"]),
    ],
)  # fmt: skip
def test_a_faulty_source_is_refused_with_words_that_help(source: str, words: list[str]) -> None:
    with pytest.raises(Invalid) as caught:
        schema_from_source(source)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_name_that_is_not_defined_is_told_with_those_that_are() -> None:
    with pytest.raises(Invalid, match="named g; it defines f"):
        schema_from_source("def f(): ...", "g")


def test_a_models_schema_becomes_a_tool_schema_with_definitions_inlined() -> None:
    args = {
        "$defs": {
            "Item": {
                "type": "object",
                "properties": {"definitions": {"type": "string"}, "next": {"$ref": "#/$defs/Item"}},
            }
        },
        "properties": {"item": {"$ref": "#/$defs/Item", "description": "It"}, "n": {"type": "integer"}},
        "required": ["item"],
        "title": "Args",
    }
    made = schema_from_args_model("buy", "Buys.", args)
    assert made == {
        "name": "buy",
        "description": "Buys.",
        "parameters": {
            "type": "object",
            "properties": {
                "item": {
                    "type": "object",
                    "properties": {"definitions": {"type": "string"}, "next": {"type": "object"}},
                    "description": "It",
                },
                "n": {"type": "integer", "description": "n"},
            },
            "required": ["item"],
        },
    }


@pytest.mark.parametrize(
    "args", [{"type": "array"}, {"properties": {"a": {"$ref": "#/$defs/Nobody"}}}], ids=["no object", "dangling"]
)
def test_a_models_schema_that_makes_no_sense_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        schema_from_args_model("buy", "Buys.", args)
