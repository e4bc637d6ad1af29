"""Validates a tool's JSON schema before it is stored: its size, its JSON values and the types of its keywords.

`records` calls `check_tool_schema` for every schema, whether a client sent it, it was read from source code, or an MCP
server offered it. Only keywords that Holdfast and the vendors read are checked; others may have any JSON value that a
database can store. Raises `Invalid`, which says where the fault is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.errors import Invalid

VALUES = 20_000
CHARACTERS = 200_000
MAX_DEPTH = 64
_LARGEST = 2**63  # larger integers are not supported by every JSON parser that reads the schema later


def check_tool_schema(schema: Mapping[str, Any]) -> None:
    """Raise `Invalid` unless `schema` is a valid `{"name", "description", "parameters"}`."""
    if fault := json_fault(schema):
        raise Invalid(f"The schema of tool {schema.get('name')!s:.64} cannot be kept: {fault}.")
    try:
        if schema.get("description") is not None and not isinstance(schema["description"], str):
            raise _Misshapen("its description must be a text")
        _check(schema.get("parameters"), "parameters")
    except _Misshapen as fault:
        raise Invalid(f"The schema of tool {schema.get('name')} is not a JSON schema: {fault}.") from None


def json_fault(value: Any) -> str | None:
    """Why this value cannot be stored as JSON, or None. Not recursive, since the depth is not yet bounded."""
    waiting: list[tuple[Any, int]] = [(value, 1)]
    values = characters = 0
    while waiting:
        item, depth = waiting.pop()
        values += 1
        if isinstance(item, Mapping):
            waiting.extend((inner, depth + 1) for pair in item.items() for inner in pair)
            if not all(isinstance(name, str) for name in item):
                return "it has a name that is no text"
        elif isinstance(item, list | tuple):
            waiting.extend((inner, depth + 1) for inner in item)
        elif isinstance(item, str):
            characters += len(item)
        if values + len(waiting) > 2 * VALUES or characters > CHARACTERS or depth > MAX_DEPTH:
            return f"it has more than {VALUES} values, {CHARACTERS} characters or {MAX_DEPTH} levels"
        if fault := _fault_of(item):
            return fault
    return None


def _fault_of(item: Any) -> str | None:
    match item:
        case None | bool() | Mapping() | list() | tuple():
            return None
        case int():
            return None if -_LARGEST <= item < _LARGEST else "it has a whole number of more than 64 bits"
        case float():
            return None if item - item == 0 else "it has a number that is not finite"
        case str():
            return _text_fault(item)
    return f"it has a value of type {type(item).__name__}, which is no JSON"


def _text_fault(text: str) -> str | None:
    if "\0" in text:
        return "it has a text with a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "it has a text with half of a surrogate pair"
    return None


# ---- types of keywords ----------------------------------------------------------------------------------


class _Misshapen(Exception):
    """A keyword has a value of a type that JSON Schema does not allow."""


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_SHAPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "type": ("a name, or a list of names", lambda value: isinstance(value, str) or _texts(value)),
    "required": ("a list of names", _texts),
    "enum": ("a list", lambda value: isinstance(value, list | tuple)),
    "properties": ("an object of schemas", lambda value: isinstance(value, Mapping)),
    "$defs": ("an object of schemas", lambda value: isinstance(value, Mapping)),
    "definitions": ("an object of schemas", lambda value: isinstance(value, Mapping)),
    "additionalProperties": ("a schema", lambda value: isinstance(value, Mapping | bool)),
    "items": ("a schema", lambda value: isinstance(value, Mapping | bool | list)),
    **dict.fromkeys(
        ("anyOf", "oneOf", "allOf"), ("a list of schemas", lambda value: isinstance(value, list) and bool(value))
    ),
    **dict.fromkeys(("pattern", "description", "title", "format", "$ref"), ("a text", lambda v: isinstance(v, str))),
    **dict.fromkeys(
        ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "multipleOf"), ("a number", _number)
    ),
}


def _check(schema: Any, place: str) -> None:
    """Check a schema and its subschemas. A null counts as a missing keyword, since clients send nulls."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise _Misshapen(f"{place} must be an object")
    for keyword, (words, fits) in _SHAPES.items():
        if schema.get(keyword) is not None and not fits(schema[keyword]):
            raise _Misshapen(f"{keyword} of {place} must be {words}")
    for keyword in ("properties", "$defs", "definitions"):
        for name, inner in (schema.get(keyword) or {}).items():
            _check(inner, f"{place}.{name}")
    for keyword in ("items", "additionalProperties", "anyOf", "oneOf", "allOf"):
        inner = schema.get(keyword)
        for one in inner if isinstance(inner, list) else [inner]:
            if one is not None:
                _check(one, f"{place}.{keyword}")
