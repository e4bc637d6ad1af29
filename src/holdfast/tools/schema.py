"""The JSON schema of a tool, from its Python source or from a model's schema. By reading only: nothing is executed.

`records` calls it when a tool is created or changed, before the source is stored. The source may hold imports, helpers
and classes; the tool is the function asked for by name, else the last one defined at the top of the source, which is
the rule that clients in the field rely on. All of a source's faults are `Invalid` errors that say what to change.

Decorators, defaults, annotations and module-level code are syntax here and nothing more.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from typing import Any

from holdfast.core.errors import Invalid
from holdfast.core.tool_schemas import VALUES, json_fault
from holdfast.tools.annotations import JsonSchema, UnknownHint, literal
from holdfast.tools.classes import Classes
from holdfast.tools.docstrings import Docstring, read_docstring

SOURCE_BYTES = 1024 * 1024
LEFT_OUT = frozenset({"self", "agent_state", "request_heartbeat"})
DEEPEST_SCHEMA = 50
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def schema_from_source(source: str, name: str | None = None, *, description: str | None = None) -> JsonSchema:
    """`{"name", "description", "parameters"}` of the source's tool. `description` stands in for the docstring's."""
    tree = _parsed(source)
    function = _target(tree, name)
    check_name(function.name)
    arguments = _arguments(function)
    told = read_docstring(ast.get_docstring(function, clean=False), [one.arg for one, _default in arguments])
    said = description or told.description
    if not said:
        raise Invalid(
            f"Function {function.name} has no description; give it a docstring that says what it does, "
            "or send a description with the tool."
        )
    return {"name": function.name, "description": said, "parameters": _parameters(tree, function, told)}


def schema_from_args_model(name: str, description: str, args_json_schema: Mapping[str, Any]) -> JsonSchema:
    """The same from the JSON schema of a pydantic model; `$defs` are written out where they are referred to."""
    check_name(name)
    if args_json_schema.get("type", "object") != "object":
        raise Invalid(f"The arguments schema of tool {name} must have the type object.")
    for key in ("properties", "$defs", "definitions"):
        if not isinstance(args_json_schema.get(key, {}), Mapping):
            raise Invalid(f"The {key} in the arguments schema of tool {name} must be an object.")
    if not isinstance(args_json_schema.get("required", []), list):
        raise Invalid(f"The required in the arguments schema of tool {name} must be a list of names.")
    top = {key: value for key, value in args_json_schema.items() if key not in ("$defs", "definitions")}
    plain = _inlined(top, _Inlining(_definitions(args_json_schema)), ())
    properties = {
        key: {"description": key, **value} if isinstance(value, dict) else value
        for key, value in plain.get("properties", {}).items()
        if key not in LEFT_OUT
    }
    required = [key for key in plain.get("required", []) if isinstance(key, str) and key in properties]
    return {
        "name": name,
        "description": description,
        "parameters": {"type": "object", "properties": properties, "required": required},
    }


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"{name!r} cannot be a tool's name; use 1 to 64 letters, digits, underscores and hyphens (a-z, A-Z, 0-9)."
        )


# ---- the function in its source -------------------------------------------------------------------------


def _parsed(source: str) -> ast.Module:
    if len(source.encode("utf-8", "surrogatepass")) > SOURCE_BYTES:
        raise Invalid(f"The tool's source is larger than {SOURCE_BYTES} bytes.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        raise Invalid(f"The tool's source has a syntax error in line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Invalid(f"The tool's source cannot be parsed: {str(error) or type(error).__name__}") from None


def _target(tree: ast.Module, name: str | None) -> Function:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if not functions:
        raise Invalid("The tool's source defines no function at its top level; write one with def or async def.")
    if name is None:
        return functions[-1]
    named = [node for node in functions if node.name == name]
    if not named:
        known = ", ".join(node.name for node in functions)
        raise Invalid(f"The tool's source defines no top-level function named {name}; it defines {known}.")
    return named[-1]


def _arguments(function: Function) -> list[tuple[ast.arg, ast.expr | None]]:
    """The parameters that the model fills, each with its default."""
    given = function.args
    if starred := given.vararg or given.kwarg:
        raise Invalid(
            f"Function {function.name} takes *{starred.arg}, but a model must know every parameter by name; "
            "replace it by named parameters with type hints."
        )
    in_order = [*given.posonlyargs, *given.args]
    missing = len(in_order) - len(given.defaults)
    defaults: list[ast.expr | None] = [*([None] * missing), *given.defaults]
    paired = list(zip(in_order, defaults, strict=True))
    paired += zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return [(one, default) for one, default in paired if one.arg not in LEFT_OUT]


def _parameters(tree: ast.Module, function: Function, told: Docstring) -> JsonSchema:
    hints = Classes(tree).hints
    properties: dict[str, JsonSchema] = {}
    required: list[str] = []
    for one, default in _arguments(function):
        if one.annotation is None:
            raise Invalid(
                f"Parameter {one.arg} of function {function.name} has no type hint; add one, "
                f"for example `{one.arg}: str`."
            )
        try:
            schema = hints.read(one.annotation)
        except (UnknownHint, RecursionError) as error:
            raise Invalid(
                f"Parameter {one.arg} of function {function.name} has a type hint that has no JSON schema: {error}. "
                "Use str, int, float, bool, list, dict, Optional, Literal, or a model, dataclass or Enum "
                "defined in the same source."
            ) from None
        properties[one.arg] = _described(schema, one.arg, told, default)
        if default is None:
            required.append(one.arg)
    return {"type": "object", "properties": properties, "required": required}


def _described(schema: JsonSchema, name: str, told: Docstring, default: ast.expr | None) -> JsonSchema:
    """A parameter's own words come first: its annotation's, then the docstring's, then a class's, then its name."""
    words = schema.get("description") if "properties" not in schema else None
    described = {**schema, "description": words or told.parameters.get(name) or schema.get("description") or name}
    is_literal, value = literal(default) if default is not None else (False, None)
    if is_literal and isinstance(value, str | int | float | bool | list | dict) and json_fault(value) is None:
        described["default"] = value
    return described


# ---- schemas made of schemas ----------------------------------------------------------------------------


def _definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"#/{place}/{key}": value
        for place in ("$defs", "definitions")
        for key, value in (schema.get(place) or {}).items()
    }


class _Inlining:
    """What references may lead to, and how much may yet be written out: definitions that refer to others twice double
    at every level."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self.definitions = definitions
        self._left = VALUES

    def take(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Invalid(f"The arguments schema has more than {VALUES} values when its references are written out.")


def _inlined(value: Any, inlining: _Inlining, within: tuple[str, ...]) -> Any:
    """The value with every reference written out; a reference to what it stands in becomes a plain object."""
    inlining.take()
    if len(within) > DEEPEST_SCHEMA:
        raise Invalid("The arguments schema is nested too deeply.")
    if isinstance(value, list):
        return [_inlined(item, inlining, (*within, "")) for item in value]
    if not isinstance(value, Mapping):
        return value
    reference = value.get("$ref")
    rest = {key: _inlined(item, inlining, (*within, "")) for key, item in value.items() if key != "$ref"}
    if not isinstance(reference, str):
        return rest if reference is None else {**rest, "$ref": reference}
    if reference not in inlining.definitions:
        raise Invalid(f"The arguments schema refers to {reference}, which it does not define.")
    if reference in within:
        return {"type": "object", **rest}
    target = _inlined(inlining.definitions[reference], inlining, (*within, reference))
    return {**(target if isinstance(target, dict) else {}), **rest}


class SourceSchemas:
    """Implements `ports.schemas.SchemaReader`."""

    def from_source(self, source: str, *, name: str | None, description: str | None) -> dict[str, Any]:
        return schema_from_source(source, name, description=description)

    def from_args(self, name: str, description: str, args_json_schema: Mapping[str, Any]) -> dict[str, Any]:
        return schema_from_args_model(name, description, args_json_schema)
