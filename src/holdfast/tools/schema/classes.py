"""Read the schemas of classes in a tool's source: enums, pydantic models, dataclasses, typed dicts, named tuples.

`tool_schema` creates `Classes`, whose `annotations.Hints` calls `class_schema` for a class's name in a hint. Fields are
read from the class body and, if a base class is in the same source, from the base first. Inside itself, a recursive
class becomes a plain object. Nothing is executed; a default that is not a literal only makes a field optional.
"""

from __future__ import annotations

import ast
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core.tools.tool_schemas import json_fault
from holdfast.tools.schema.annotations import (
    Hints,
    JsonSchema,
    UnsupportedHint,
    enumeration,
    field_constraints,
    literal,
)
from holdfast.tools.schema.docstrings import read_docstring

_ENUMS = frozenset({"Enum", "IntEnum", "StrEnum"})
_RECORDS = frozenset({"BaseModel", "TypedDict", "NamedTuple"})


@dataclass(frozen=True, slots=True)
class _Field:
    schema: JsonSchema
    required: bool
    alias: str | None = None  # the name under which a pydantic model accepts it


class Classes:
    """The classes of one source, and the hints that may name them."""

    def __init__(self, tree: ast.Module) -> None:
        self.hints = Hints(tree, self.class_schema)
        self._open: list[str] = []

    def class_schema(self, node: ast.ClassDef, depth: int) -> JsonSchema:
        if node.name in self._open:
            return {"type": "object", "description": f"another {node.name}"}
        ancestry = self._ancestry(node)
        names = {name for one in ancestry for base in one.bases if (name := self.hints.name_of(base))}
        self._open.append(node.name)
        try:
            if names & _ENUMS:
                return self._enum(node, names)
            if names & _RECORDS or any(_is_dataclass(one, self.hints) for one in ancestry):
                return self._record(node, ancestry, depth)
        finally:
            self._open.pop()
        raise UnsupportedHint(f"{node.name} is a plain class; make it a pydantic model, a dataclass or an Enum")

    def _ancestry(self, node: ast.ClassDef) -> list[ast.ClassDef]:
        """The class and its bases within the source, the most basic first; a cycle ends the search."""
        ancestors: dict[ast.ClassDef, None] = {}
        queue = deque([node])
        while queue:
            one = queue.popleft()
            if one not in ancestors:
                ancestors[one] = None
                known = [self.hints.classes.get(self.hints.name_of(base) or "") for base in one.bases]
                queue.extend(base for base in known if base is not None)
        return list(ancestors)[::-1]

    def _enum(self, node: ast.ClassDef, bases: set[str]) -> JsonSchema:
        values: list[Any] = []
        for item in node.body:
            if not isinstance(item, ast.Assign) or not isinstance(item.targets[0], ast.Name):
                continue
            is_literal, value = literal(item.value)
            if is_literal and (fault := json_fault(value)):
                raise UnsupportedHint(f"{node.name}.{item.targets[0].id} cannot be part of a schema: {fault}")
            if is_literal:
                values.append(value)
            elif isinstance(item.value, ast.Call) and self.hints.name_of(item.value.func) == "auto":
                values.append(item.targets[0].id.lower() if "StrEnum" in bases else len(values) + 1)
            else:
                raise UnsupportedHint(f"{node.name}.{item.targets[0].id} has a value that is not a literal")
        return enumeration(values)

    def _record(self, node: ast.ClassDef, ancestry: list[ast.ClassDef], depth: int) -> JsonSchema:
        fields: dict[str, _Field] = {}
        for one in ancestry:
            fields.update(self._own_fields(one, depth))
        schema: JsonSchema = {
            "type": "object",
            "properties": {one.alias or name: one.schema for name, one in fields.items()},
            "required": [one.alias or name for name, one in fields.items() if one.required],
        }
        text = read_docstring(ast.get_docstring(node, clean=False), list(fields)).description
        return {**schema, "description": text} if text else schema

    def _own_fields(self, node: ast.ClassDef, depth: int) -> dict[str, _Field]:
        annotated = [item for item in node.body if isinstance(item, ast.AnnAssign)]
        named = {item.target.id: item for item in annotated if isinstance(item.target, ast.Name)}
        descriptions = read_docstring(ast.get_docstring(node, clean=False), list(named)).parameters
        fields: dict[str, _Field] = {}
        for name, item in named.items():
            wrapper = self._wrapper(item.annotation)
            if name == "model_config" or name.startswith("_") or wrapper == "ClassVar":
                continue
            schema = self.hints.read(item.annotation, depth + 1)
            if name in descriptions:
                schema.setdefault("description", descriptions[name])
            optional = wrapper == "NotRequired" or (_not_total(node) and wrapper != "Required")
            built = self._with_default(schema, item.value, optional=optional)
            fields[name] = replace(built, alias=self._alias(item))
        return fields

    def _alias(self, item: ast.AnnAssign) -> str | None:
        """The alias in `Field(alias=…)`, as the value or inside `Annotated`."""
        inside = item.annotation.slice if isinstance(item.annotation, ast.Subscript) else None
        places = [item.value, *(inside.elts if isinstance(inside, ast.Tuple) else ())]
        calls = [one for one in places if isinstance(one, ast.Call) and self.hints.name_of(one.func) == "Field"]
        keywords = {keyword.arg: literal(keyword.value)[1] for call in calls for keyword in call.keywords}
        return next(
            (keywords[key] for key in ("validation_alias", "alias") if isinstance(keywords.get(key), str)), None
        )

    def _wrapper(self, annotation: ast.expr) -> str | None:
        return self.hints.name_of(annotation.value) if isinstance(annotation, ast.Subscript) else None

    def _with_default(self, schema: JsonSchema, value: ast.expr | None, *, optional: bool) -> _Field:
        if value is None:
            return _Field(schema, required=not optional)
        if isinstance(value, ast.Call) and self.hints.name_of(value.func) in ("Field", "field"):
            constraints = field_constraints(value, listed=schema.get("type") == "array")
            given = {keyword.arg: keyword.value for keyword in value.keywords}
            default = given.get("default", value.args[0] if value.args else None)
            required = "default_factory" not in given and (default is None or _is_ellipsis(default))
            return _Field({**schema, **_default(default), **constraints}, required=required)
        return _Field({**schema, **_default(value)}, required=_is_ellipsis(value))


def _default(node: ast.expr | None) -> JsonSchema:
    is_literal, value = literal(node) if node is not None else (False, None)
    kept = is_literal and isinstance(value, str | int | float | bool) and json_fault(value) is None
    return {"default": value} if kept else {}


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _is_dataclass(node: ast.ClassDef, hints: Hints) -> bool:
    decorators = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
    return any(hints.name_of(one) == "dataclass" for one in decorators)


def _not_total(node: ast.ClassDef) -> bool:
    return any(one.arg == "total" and literal(one.value) == (True, False) for one in node.keywords)
