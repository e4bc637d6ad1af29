"""Converts a tool's JSON schema to the form vendors require for strict calls: closed objects, all properties required.

An optional parameter becomes a nullable one: the model must write it, and null means "not given" when the call is
checked (`core.tools.json_schema`). So a parameter that accepts null but has another default has no strict form. Open
objects, references, and keywords that the vendor rejects have none either. Such a tool is offered without `strict` and
with its schema unchanged; its calls are checked anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COMMON = frozenset(
    {"type", "description", "title", "enum", "const", "format", "properties", "required", "items", "anyOf"}
    | {"additionalProperties", "default"}
)
# https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
OPENAI = _COMMON | {"pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"}
# https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations: no bounds at all
ANTHROPIC = _COMMON

_NULL = {"type": "null"}


class _NoStrictForm(Exception):
    """The schema, or a part of it, has no strict form."""


def strict_schema(schema: Mapping[str, Any], keywords: frozenset[str]) -> dict[str, Any] | None:
    """A tool's parameters in strict form, or None if they have none. `keywords` are those the vendor accepts."""
    try:
        return _closed({**schema, "type": "object"}, keywords)
    except (_NoStrictForm, RecursionError):
        return None


def _strict(schema: Any, keywords: frozenset[str]) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or not set(schema) <= keywords or not ("type" in schema or "anyOf" in schema):
        raise _NoStrictForm
    if schema.get("type") == "object":
        if not schema.get("properties"):
            raise _NoStrictForm  # a plain dict: a closed one could only be empty
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
    if _accepts_null(strict):
        if schema.get("default") is not None:
            raise _NoStrictForm
        return strict
    if set(strict) <= {"anyOf", "description"}:
        return {**strict, "anyOf": [*strict["anyOf"], _NULL]}
    words = {"description": strict.pop("description")} if "description" in strict else {}
    return {"anyOf": [strict, _NULL], **words}


def _accepts_null(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "null" or (isinstance(kind, list) and "null" in kind) or _NULL in schema.get("anyOf", ())
