"""Make an example value of a JSON schema: the smallest that says something. `document.py` uses it for every body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_LEVELS = 8
UUID = "123e4567-e89b-42d3-8456-426614174000"
# Values by the name of the field, where the type alone would say little.
BY_NAME: Mapping[str, Any] = {
    **{f"{kind}_id": f"{kind}-{UUID}" for kind in ("agent", "run", "step", "message", "tool", "block", "archive")},
    "conversation_id": f"conv-{UUID}",
    "model": "openai/gpt-5.2",
    "name": "assistant",
    "label": "human",
    "value": "The user is called Ann.",
    "text": "Ann likes tea.",
    "query": "tea",
    "otid": UUID,
    "content": "Hello!",
    "source_code": 'def roll() -> str:\n    """Roll a die."""\n    return "4"\n',
    "provider_type": "openai",
    "server_name": "files",
}


def example_of(schema: Mapping[str, Any], components: Mapping[str, Any], name: str = "", level: int = 0) -> Any:
    """A value that the schema accepts."""
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    if "const" in schema:
        return schema["const"]
    if "$ref" in schema:
        return example_of(components[schema["$ref"].rpartition("/")[2]], components, name, level)
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _of_choice(schema[key], components, name, level)
    match schema.get("type"):
        case "object":
            return _of_object(schema, components, level)
        case "array":
            deep = level > MOST_LEVELS
            return [] if deep else [example_of(schema.get("items", {}), components, name.removesuffix("s"), level + 1)]
        case "string":
            return _of_text(schema, name)
        case "integer" | "number":
            return max(schema.get("minimum", 1), 1)
        case "boolean":
            return bool(schema.get("default", True))
        case _:
            return None


def _of_choice(choices: list[Any], components: Mapping[str, Any], name: str, level: int) -> Any:
    """Null where a value could be an object, because examples would grow; else the first choice."""
    can_be_null = any(choice.get("type") == "null" for choice in choices)
    first: Mapping[str, Any] = next((choice for choice in choices if choice.get("type") != "null"), {})
    is_large = "$ref" in first or first.get("type") in ("object", "array") or "anyOf" in first or "oneOf" in first
    return None if can_be_null and (is_large or not first) else example_of(first, components, name, level)


def _of_object(schema: Mapping[str, Any], components: Mapping[str, Any], level: int) -> dict[str, Any]:
    if level > MOST_LEVELS:
        return {}
    properties, required = schema.get("properties", {}), schema.get("required", [])
    wanted = [name for name in properties if name in required] or list(properties)[:1]
    return {name: example_of(properties[name], components, name, level + 1) for name in wanted}


def _of_text(schema: Mapping[str, Any], name: str) -> str:
    if name in BY_NAME:
        return str(BY_NAME[name])
    if schema.get("format") == "date-time":
        return "2026-01-31T12:00:00Z"
    return str(schema["default"]) if isinstance(schema.get("default"), str) else "text"
