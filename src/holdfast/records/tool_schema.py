"""What a tool is called and what the model is told of it, from what the client sent. Pure, but for the reader it asks.

A JSON schema that was sent wins. Else the arguments' schema with the source's function, else the source alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from holdfast.core.errors import Invalid
from holdfast.core.tool_schemas import check_tool_schema
from holdfast.ports.schemas import SchemaReader

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def schema_for(reader: SchemaReader, source: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """`{"name", "description", "parameters"}`; raises `Invalid` and says what to change."""
    schema = _schema_for(reader, source, given)
    check_tool_schema(schema)
    return schema


def _schema_for(reader: SchemaReader, source: str, given: Mapping[str, Any]) -> dict[str, Any]:
    description: str | None = given.get("description")
    if given.get("json_schema"):
        return _as_sent(given["json_schema"], source, description)
    if given.get("source_type") in ("typescript", "ts"):
        raise Invalid("A TypeScript tool needs a json_schema: only Python sources are read for one.")
    if given.get("args_json_schema"):
        name, docstring = _function(source)
        return reader.from_args(name, description or docstring or name, given["args_json_schema"])
    return reader.from_source(source, name=given.get("name"), description=description)


def _as_sent(sent: Mapping[str, Any], source: str, description: str | None) -> dict[str, Any]:
    schema = dict(sent)
    name = schema.get("name") or _function(source)[0]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Invalid(f"{name!r} cannot be a tool's name; use 1 to 64 letters, digits, underscores and hyphens.")
    schema["name"] = name
    schema.setdefault("description", description)
    schema.setdefault("parameters", {"type": "object", "properties": {}, "required": []})
    return schema


def _function(source: str) -> tuple[str, str | None]:
    """Name and docstring of the last function at the top of the source; its parameters are of no interest here."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Invalid(f"The tool's source cannot be parsed: {error}") from None
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if not functions:
        raise Invalid("The tool's source defines no function at its top level; write one with def or async def.")
    return functions[-1].name, ast.get_docstring(functions[-1])
