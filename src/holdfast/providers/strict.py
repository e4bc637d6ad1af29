"""Tool schemas in the form that vendors want for strict calls: closed objects, every property required.

A parameter that may be left out becomes one that may be null: the model must write it, and null then means "not given"
again when the call is checked (`core.conformity`). That keeps its meaning unless null already had another one: a
parameter that takes null but has another default has no strict form. Nor have open objects, references, and keywords
that the vendor refuses. Such a tool is offered without `strict` and with its schema as it is; its calls are checked
anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PLAIN = frozenset(
    {"type", "description", "title", "enum", "const", "format", "properties", "required", "items", "anyOf"}
    | {"additionalProperties", "default"}
)
# https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
OPENAI = _PLAIN | {"pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"}
# https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations: no bounds at all
ANTHROPIC = _PLAIN

_NULL = {"type": "null"}


class _NoStrictForm(Exception):
    """Something in the schema cannot be said strictly."""


def strict_schema(schema: Mapping[str, Any], keywords: frozenset[str]) -> dict[str, Any] | None:
    """A tool's parameters in their strict form, or None if they have none. `keywords` are those the vendor takes."""
    try:
        return _closed({**schema, "type": "object"}, keywords)
    except (_NoStrictForm, RecursionError):
        return None


def _strict(schema: Any, keywords: frozenset[str]) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or not set(schema) <= keywords or not ("type" in schema or "anyOf" in schema):
        raise _NoStrictForm
    if schema.get("type") == "object":
        if not schema.get("properties"):
            raise _NoStrictForm  # a plain dict: closed, it could only ever be empty
        return _closed(schema, keywords)
    kept = {key: value for key, value in schema.items() if key != "default"}
    if "anyOf" in kept:
        kept["anyOf"] = [_strict(option, keywords) for option in kept["anyOf"]]
    if kept.get("type") == "array":
        kept["items"] = _strict(kept.get("items"), keywords)
    return kept


def _closed(schema: Mapping[str, Any], keywords: frozenset[str]) -> dict[str, Any]:
    if schema.get("additionalProperties") or not set(schema) <= keywords:
        raise _NoStrictForm
    required = schema.get("required") or ()
    properties = {
        name: _strict(inner, keywords) if name in required else _optional(inner, keywords)
        for name, inner in (schema.get("properties") or {}).items()
    }
    kept = {key: value for key, value in schema.items() if key != "default"}
    return {**kept, "properties": properties, "required": list(properties), "additionalProperties": False}


def _optional(schema: Any, keywords: frozenset[str]) -> dict[str, Any]:
    strict = _strict(schema, keywords)
    if _takes_null(strict):
        if schema.get("default") is not None:
            raise _NoStrictForm
        return strict
    if set(strict) <= {"anyOf", "description"}:
        return {**strict, "anyOf": [*strict["anyOf"], _NULL]}
    words = {"description": strict.pop("description")} if "description" in strict else {}
    return {"anyOf": [strict, _NULL], **words}


def _takes_null(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "null" or (isinstance(kind, list) and "null" in kind) or _NULL in schema.get("anyOf", ())
