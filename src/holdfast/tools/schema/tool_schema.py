"""Build the JSON schema of a tool from its Python source or from a model's schema, without executing anything.

`records` calls it when a tool is created or changed, before the source is stored. The source may contain imports,
helpers and classes; the tool is the function with the requested name, else the last one defined at the top level of the
source, which is the rule that existing clients rely on. All faults of a source are `Invalid` errors that say what to
change. Decorators, defaults, annotations and module-level code are only read as syntax.

Sources are hostile input, and Python's parser holds the interpreter's lock while it works, so parsing in a thread would
still block the server. Therefore the source is limited first, by `SOURCE_BYTES` and `BRACES` (at worst a fifth of a
second each), and the work after parsing by `annotations.READ_SECONDS`. Python itself limits the nesting of a source.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from typing import Any

from holdfast.core.errors import Invalid
from holdfast.core.tools.tool_schemas import VALUES, json_fault
from holdfast.tools.schema.annotations import JsonSchema, UnsupportedHint, literal
from holdfast.tools.schema.classes import Classes
from holdfast.tools.schema.docstrings import Docstring, cleaned, read_docstring

SOURCE_BYTES = 128 * 1024
BRACES = 5_000  # in a source with f-strings: before Python 3.12, each expression in one is parsed separately
SHOWN_NAMES = 20
MAX_HINT_CHARACTERS = 300  # of a type hint in an error
HIDDEN_PARAMETERS = frozenset({"self", "agent_state", "request_heartbeat"})
MAX_SCHEMA_DEPTH = 50
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_F_STRING = re.compile(r"[fF][rR]?[\"']")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def schema_from_source(source: str, name: str | None = None, *, description: str | None = None) -> JsonSchema:
    """`{"name", "description", "parameters"}` of the source's tool. `description` replaces the docstring's."""
    tree = _parsed(source)
    function = _target(tree, name)
    check_name(function.name)
    arguments = _arguments(function)
    docstring = read_docstring(
        ast.get_docstring(function, clean=False), [parameter.arg for parameter, _default in arguments]
    )
    text = description or docstring.description
    if not text:
        raise Invalid(
            f"Function {function.name} has no description; give it a docstring that says what it does, "
            "or send a description with the tool."
        )
    return {"name": function.name, "description": text, "parameters": _parameters(tree, function, docstring)}


def schema_from_args_model(name: str, description: str, args_json_schema: Mapping[str, Any]) -> JsonSchema:
    """The same from the JSON schema of a pydantic model; references to `$defs` are replaced by the definitions."""
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
        if key not in HIDDEN_PARAMETERS
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
    advice = "Send a json_schema with a name with the tool, so that its source is not read for one, or shorten it."
    if len(source) > SOURCE_BYTES or len(source.encode("utf-8", "surrogatepass")) > SOURCE_BYTES:
        raise Invalid(f"The tool's source is larger than {SOURCE_BYTES} bytes. {advice}")
    if source.count("{") > BRACES and _F_STRING.search(source):
        raise Invalid(f"The tool's source has f-strings and more than {BRACES} opening braces. {advice}")
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
        known = ", ".join(node.name for node in functions[:SHOWN_NAMES])
        raise Invalid(f"The tool's source defines no top-level function named {name}; it defines {known}.")
    return named[-1]


def _arguments(function: Function) -> list[tuple[ast.arg, ast.expr | None]]:
    """The parameters that the model fills, each with its default."""
    signature = function.args
    if starred := signature.vararg or signature.kwarg:
        raise Invalid(
            f"Function {function.name} takes *{starred.arg}, but a model must know every parameter by name; "
            "replace it by named parameters with type hints."
        )
    in_order = [*signature.posonlyargs, *signature.args]
    missing = len(in_order) - len(signature.defaults)
    defaults: list[ast.expr | None] = [*([None] * missing), *signature.defaults]
    paired = list(zip(in_order, defaults, strict=True))
    paired += zip(signature.kwonlyargs, signature.kw_defaults, strict=True)
    return [(parameter, default) for parameter, default in paired if parameter.arg not in HIDDEN_PARAMETERS]


def _parameters(tree: ast.Module, function: Function, docstring: Docstring) -> JsonSchema:
    hints = Classes(tree).hints
    properties: dict[str, JsonSchema] = {}
    required: list[str] = []
    for parameter, default in _arguments(function):
        if parameter.annotation is None:
            raise Invalid(
                f"Parameter {parameter.arg} of function {function.name} has no type hint; add one, "
                f"for example `{parameter.arg}: str`."
            )
        try:
            schema = hints.read(parameter.annotation)
        except (UnsupportedHint, RecursionError) as error:
            raise Invalid(
                f"Parameter {parameter.arg} of function {function.name} has a type hint that has no JSON schema: "
                f"{str(error)[:MAX_HINT_CHARACTERS]}. "
                "Use str, int, float, bool, list, dict, Optional, Literal, or a model, dataclass or Enum "
                "defined in the same source."
            ) from None
        properties[parameter.arg] = _described(schema, parameter.arg, docstring, default)
        if default is None:
            required.append(parameter.arg)
    return {"type": "object", "properties": properties, "required": required}


def _described(schema: JsonSchema, name: str, docstring: Docstring, default: ast.expr | None) -> JsonSchema:
    """Add the description: the annotation's own, else the docstring's, else a class's, else the parameter's name."""
    words = schema.get("description") if "properties" not in schema else None
    described = {**schema, "description": words or docstring.parameters.get(name) or schema.get("description") or name}
    is_literal, value = literal(default) if default is not None else (False, None)
    if is_literal and isinstance(value, str | int | float | bool | list | dict) and json_fault(value) is None:
        described["default"] = value
    return described


# ---- replacing references -------------------------------------------------------------------------------


def _definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"#/{section}/{key}": value
        for section in ("$defs", "definitions")
        for key, value in (schema.get(section) or {}).items()
    }


class _Inlining:
    """The definitions that references may name, and how many values may still be written out. The limit is needed
    because definitions that refer to others twice double at every level.
    """

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self.definitions = definitions
        self._left = VALUES

    def take(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Invalid(f"The arguments schema has more than {VALUES} values when its references are written out.")


def _inlined(value: Any, inlining: _Inlining, within: tuple[str, ...]) -> Any:
    """The value with every reference replaced; a reference to a schema that contains it becomes a plain object."""
    inlining.take()
    if len(within) > MAX_SCHEMA_DEPTH:
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
    """Implements `ports.schema_reader.SchemaReader`."""

    def from_source(self, source: str, *, name: str | None, description: str | None) -> dict[str, Any]:
        return schema_from_source(source, name, description=description)

    def function_in(self, source: str) -> tuple[str, str | None]:
        function = _target(_parsed(source), None)
        return function.name, cleaned(ast.get_docstring(function, clean=False) or "") or None

    def from_args(self, name: str, description: str, args_json_schema: Mapping[str, Any]) -> dict[str, Any]:
        return schema_from_args_model(name, description, args_json_schema)
