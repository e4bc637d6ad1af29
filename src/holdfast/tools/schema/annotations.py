"""Convert a type hint to a JSON schema by reading its syntax tree, never by evaluating it.

`tool_schema` calls it for each parameter. Names are taken literally (`Optional`, `t.Optional` and `typing.Optional` are
the same), names imported under an alias are resolved, and classes and type aliases defined at the top level of the same
source are known; `classes` reads those. A hint that has no schema raises `UnsupportedHint`, which the caller turns into
an error that names the parameter.

It never imports, never executes, and never guesses a type.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable
from typing import Any

JsonSchema = dict[str, Any]

MAX_DEPTH = 30
MAX_HINTS = 5_000  # of one source; a class or alias counts each time it is expanded
MAX_TEXT_CHARACTERS = 1_000  # of a hint that is written as a string
# Processor time for all hints of one source. A short source can cost much: a long class that many parameters name is
# read for each of them.
READ_SECONDS = 2.0

_SIMPLE: dict[str, JsonSchema] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "Decimal": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "NoneType": {"type": "null"},
    "Any": {},
    "object": {},
    "datetime": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "UUID": {"type": "string", "format": "uuid"},
    "Path": {"type": "string"},
}
_LISTS = frozenset({"list", "List", "Sequence", "MutableSequence", "Iterable", "Collection"})
_SETS = frozenset({"set", "Set", "frozenset", "FrozenSet", "AbstractSet"})
_DICTS = frozenset({"dict", "Dict", "Mapping", "MutableMapping", "defaultdict", "OrderedDict"})
_WRAPPERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"})
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


class UnsupportedHint(Exception):
    """A type hint that has no JSON schema here; the text is the hint itself or what is wrong with it."""


def literal(node: ast.AST | None) -> tuple[bool, Any]:
    """(True, value) for a literal, (False, None) for anything that would have to be executed."""
    try:
        return True, ast.literal_eval(node)  # type: ignore[arg-type]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False, None


def last_name(node: ast.AST) -> str | None:
    """`Optional` for both `Optional` and `typing.Optional`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return None


class Hints:
    """Reads the hints of one source. `class_schema` gives the schema of a class that the source defines."""

    def __init__(self, tree: ast.Module, class_schema: Callable[[ast.ClassDef, int], JsonSchema]) -> None:
        self._class_schema = class_schema
        self._hints_read = 0
        self._deadline = time.thread_time() + READ_SECONDS
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self._import_aliases = _imported_names(tree)
        self._aliases = _type_aliases(tree)

    def name_of(self, node: ast.AST) -> str | None:
        """The name without its module, with `import … as` resolved."""
        name = last_name(node)
        return self._import_aliases.get(name, name) if isinstance(node, ast.Name) and name else name

    def read(self, node: ast.expr, depth: int = 0) -> JsonSchema:
        self._hints_read += 1
        if depth > MAX_DEPTH or self._hints_read > MAX_HINTS:
            raise UnsupportedHint("it is nested too deeply")
        if time.thread_time() > self._deadline:
            raise UnsupportedHint(f"the hints of this source take more than {READ_SECONDS:g} s to read")
        match node:
            case ast.Constant(value=None):
                return {"type": "null"}
            case ast.Constant(value=str(text)):
                return self.read(_parsed(text), depth + 1)
            case ast.Name() | ast.Attribute():
                return self._named(node, depth)
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                return self._union([left, right], depth)
            case ast.Subscript(value=value, slice=inside):
                return self._generic(self.name_of(value), _elements(inside), node, depth)
        raise UnsupportedHint(ast.unparse(node))

    def _named(self, node: ast.expr, depth: int) -> JsonSchema:
        name = self.name_of(node) or ""
        if name in self.classes:
            return self._class_schema(self.classes[name], depth + 1)
        if isinstance(node, ast.Name) and name in self._aliases:
            return self.read(self._aliases[name], depth + 1)
        if name in _SIMPLE:
            return dict(_SIMPLE[name])
        if name in _LISTS or name == "tuple" or name == "Tuple":
            return {"type": "array", "items": {}}
        if name in _SETS:
            return {"type": "array", "items": {}, "uniqueItems": True}
        if name in _DICTS:
            return {"type": "object"}
        raise UnsupportedHint(ast.unparse(node))

    def _generic(self, name: str | None, inside: list[ast.expr], whole: ast.expr, depth: int) -> JsonSchema:
        if not inside and name in ("tuple", "Tuple"):
            return {"type": "array", "items": {}, "maxItems": 0}
        if not inside:
            raise UnsupportedHint(ast.unparse(whole))
        if name == "Optional":
            return self._union([*inside, ast.Constant(value=None)], depth)
        if name == "Union":
            return self._union(inside, depth)
        if name == "Literal":
            return _enumeration(inside)
        if name == "Annotated":
            return {**self.read(inside[0], depth + 1), **self._annotated_extras(inside[1:])}
        if name in _WRAPPERS:
            return self.read(inside[0], depth + 1)
        if name in ("tuple", "Tuple"):
            return self._tuple(inside, depth)
        if name in _LISTS:
            return {"type": "array", "items": self.read(inside[0], depth + 1)}
        if name in _SETS:
            return {"type": "array", "items": self.read(inside[0], depth + 1), "uniqueItems": True}
        if name in _DICTS and len(inside) == 2:
            return {"type": "object", "additionalProperties": self.read(inside[1], depth + 1)}
        raise UnsupportedHint(ast.unparse(whole))

    def _union(self, members: list[ast.expr], depth: int) -> JsonSchema:
        options: dict[str, JsonSchema] = {}  # by repr, to remove duplicates
        for member in members:
            schema = self.read(member, depth + 1)
            for option in schema["anyOf"] if set(schema) == {"anyOf"} else [schema]:
                options.setdefault(repr(option), option)
        return next(iter(options.values())) if len(options) == 1 else {"anyOf": list(options.values())}

    def _tuple(self, inside: list[ast.expr], depth: int) -> JsonSchema:
        last = inside[-1]
        if isinstance(last, ast.Constant) and last.value is Ellipsis:
            return {"type": "array", "items": self.read(inside[0], depth + 1)}
        return {
            "type": "array",
            "items": self._union(inside, depth),
            "minItems": len(inside),
            "maxItems": len(inside),
        }

    def _annotated_extras(self, extras: list[ast.expr]) -> JsonSchema:
        """What `Annotated` adds: a description as a string, `Doc(...)` or `Field(description=...)`, and constraints."""
        extras_schema: JsonSchema = {}
        for extra in extras:
            if isinstance(extra, ast.Constant) and isinstance(extra.value, str):
                extras_schema["description"] = extra.value
            elif isinstance(extra, ast.Call) and self.name_of(extra.func) == "Doc" and extra.args:
                extras_schema["description"] = str(literal(extra.args[0])[1] or "")
            elif isinstance(extra, ast.Call) and self.name_of(extra.func) == "Field":
                extras_schema.update(field_constraints(extra))
        return {key: value for key, value in extras_schema.items() if value != ""}


_FIELD_KEYWORDS = {
    "description": "description",
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
    "pattern": "pattern",
}


def field_constraints(call: ast.Call, *, listed: bool = False) -> JsonSchema:
    """The keywords of a pydantic `Field(...)` that a JSON schema can express."""
    size = ("minItems", "maxItems") if listed else ("minLength", "maxLength")
    known = {**_FIELD_KEYWORDS, "min_length": size[0], "max_length": size[1]}
    constraints: JsonSchema = {}
    for keyword in call.keywords:
        is_literal, value = literal(keyword.value)
        if keyword.arg in known and is_literal and value is not None:
            constraints[known[keyword.arg]] = value
    return constraints


def _enumeration(members: list[ast.expr]) -> JsonSchema:
    values = []
    for member in members:
        is_literal, value = literal(member)
        if not is_literal or type(value) not in _JSON_TYPES:
            raise UnsupportedHint(f"Literal[{ast.unparse(member)}]")
        values.append(value)
    return enumeration(values)


def enumeration(values: list[Any]) -> JsonSchema:
    """An enum, with its type if all values have the same one."""
    kinds = {_JSON_TYPES.get(type(value), "") for value in values}
    kind = kinds.pop() if len(kinds) == 1 else ""
    return {"type": kind, "enum": values} if kind else {"enum": values}


def _elements(inside: ast.expr) -> list[ast.expr]:
    return list(inside.elts) if isinstance(inside, ast.Tuple) else [inside]


def _parsed(text: str) -> ast.expr:
    if len(text) > MAX_TEXT_CHARACTERS:
        raise UnsupportedHint(f"a text of more than {MAX_TEXT_CHARACTERS} characters")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnsupportedHint(repr(text)) from None


def _imported_names(tree: ast.Module) -> dict[str, str]:
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname: alias.name for node in imports for alias in node.names if alias.asname}


def _type_aliases(tree: ast.Module) -> dict[str, ast.expr]:
    """`Level = Literal["low", "high"]` at the top level of the source. Other assignments are included too, and are
    harmless.
    """
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = value
    return found
