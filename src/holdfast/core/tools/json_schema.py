"""A JSON Schema validator for tool arguments, with the keywords that tools, clients and MCP servers use.

`call_arguments` makes one `Checker` per call. Supported are: type (also as a list), nullable, enum, const, properties,
required, additionalProperties, items, anyOf, oneOf, allOf, the usual bounds, pattern, and $ref into the schema itself;
every other keyword is ignored. All faults are collected, each with its place, so that the model can fix them at once.

A schema can cause unbounded work (nested options that refer to each other, long references, long lists of names), and
this runs in the server. So one check takes at most `MAX_STEPS`, each of a few microseconds; after that the arguments
are refused. `schema_patterns` limits the work of regular expressions.

Two values are converted because nothing is lost: 3.0 for an integer becomes 3, and null for an optional property that
does not accept null means that it was left out (strict mode makes models write that). Nothing else is converted.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any, TypeGuard

from holdfast.core.tools import schema_patterns

MAX_REFERENCE_DEPTH = 100
MAX_STEPS = 20_000  # about a tenth of a second; models do not write values with so many parts
PATTERN_STEPS_PER_STEP = 500  # how many steps of `schema_patterns` take as long as one step here
CHARACTERS_PER_STEP = 2_000  # how many characters are compared in one step
FAULT_STEPS = 20  # the cost of writing the text of a fault
MAX_FAULT_CHARACTERS = 500  # the faults of nested options contain each other
MAX_SHOWN_CHARACTERS = 100  # of one value in a fault

Schema = Mapping[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class StepBudgetExceeded(Exception):
    """The check has used up `MAX_STEPS`."""


class StepBudget:
    """The remaining steps of one check, shared by the checkers of all its options."""

    def __init__(self) -> None:
        self._left = MAX_STEPS
        self._compiled: set[str] = set()

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise StepBudgetExceeded

    def take_compiling(self, pattern: str) -> None:
        """The cost of compiling a pattern, once in this check: `re` keeps those that it has compiled."""
        if pattern not in self._compiled:
            self._compiled.add(pattern)
            self.take(schema_patterns.compile_steps(pattern))


class Checker:
    """Checks one value. `faults` are the errors in the order in which they were found."""

    def __init__(self, root: Schema, steps: StepBudget | None = None) -> None:
        self._root = root
        self._steps = steps or StepBudget()
        self.faults: list[str] = []

    def check_arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Check the top level. There an unknown name is a fault, unless the schema lists no properties or sets
        additionalProperties."""
        schema = dict(self._root)
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
        schema["type"] = "object"
        try:
            checked: dict[str, Any] = self.check(given, schema, "")
        except (StepBudgetExceeded, RecursionError):
            self.faults = [
                f"the arguments cannot be checked in {MAX_STEPS} steps: send less, or simplify the tool's schema"
            ]
            return given
        return checked

    def check(self, value: Any, schema: Any, place: str, depth: int = 0) -> Any:
        """Check a value and return it, with the two conversions described above."""
        self._steps.take(1)
        if not isinstance(schema, Mapping):
            if schema is False:
                self._fault(place, "is not allowed here")
            return value
        if "$ref" in schema:
            return self._check_ref(value, schema, place, depth)
        if value is None and schema.get("nullable") is True:
            return value
        value = self._check_type(value, schema, place)
        self._check_choice(value, schema, place)
        value = self._check_combined(value, schema, place, depth)
        if isinstance(value, str):
            self._check_text(value, schema, place)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self._check_number(value, schema, place)
        elif isinstance(value, list):
            return self._check_list(value, schema, place, depth)
        elif isinstance(value, dict):
            return self._check_object(value, schema, place, depth)
        return value

    def _fault(self, place: str, what: str) -> None:
        self._steps.take(FAULT_STEPS)
        fault = f"{place or 'the arguments'} {what}"
        self.faults.append(fault if len(fault) <= MAX_FAULT_CHARACTERS else f"{fault[:MAX_FAULT_CHARACTERS]}…")

    def _check_ref(self, value: Any, schema: Schema, place: str, depth: int) -> Any:
        target: Any = self._root
        reference = str(schema["$ref"])
        self._steps.take(reference.count("/"))
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, Mapping) else None
        if target is None or depth > MAX_REFERENCE_DEPTH:
            return value
        rest = {key: one for key, one in schema.items() if key != "$ref"}
        value = self.check(value, target, place, depth + 1)
        return self.check(value, rest, place, depth + 1) if rest else value

    # ---- any value ----------------------------------------------------------------------------------------

    def _check_type(self, value: Any, schema: Schema, place: str) -> Any:
        wanted = schema.get("type")
        names = [wanted] if isinstance(wanted, str) else list(wanted or [])
        known = [name for name in names if name in _TYPES]
        if not known or any(_is_of_type(value, name) for name in known):
            return value
        if "integer" in known and isinstance(value, float) and value.is_integer():
            return int(value)
        self._fault(place, f"must be of type {' or '.join(known)}, not {_type_name(value)}")
        return value

    def _check_choice(self, value: Any, schema: Schema, place: str) -> None:
        choices = schema.get("enum")
        if isinstance(value, str):
            self._steps.take(len(value) // CHARACTERS_PER_STEP)
        if isinstance(choices, list):
            self._steps.take(len(choices))
        if isinstance(choices, list) and not any(_same(value, choice) for choice in choices):
            self._fault(place, f"must be one of {_listed(choices)}")
        if "const" in schema and not _same(value, schema["const"]):
            self._fault(place, f"must be {_shown(schema['const'])}")

    def _check_combined(self, value: Any, schema: Schema, place: str, depth: int) -> Any:
        for part in schema.get("allOf") or []:
            value = self.check(value, part, place, depth)
        for keyword in ("anyOf", "oneOf"):
            if options := schema.get(keyword):
                value = self._check_options(value, options, place, depth)
        return value

    def _check_options(self, value: Any, options: list[Any], place: str, depth: int) -> Any:
        """The value as converted by the first option that fits. If there is only one option besides null, its faults
        are reported in detail; otherwise only that no option fits."""
        attempts: list[list[str]] = []
        for option in options:
            attempt = Checker(self._root, self._steps)
            result = attempt.check(value, option, place, depth)
            if not attempt.faults:
                return result
            attempts.append(attempt.faults)
        others = [faults for faults, option in zip(attempts, options, strict=True) if option != {"type": "null"}]
        if len(others) == 1:
            self.faults.extend(others[0])
        else:
            self._fault(place, "fits none of the allowed forms (" + " | ".join(f[0] for f in attempts) + ")")
        return value

    # ---- values of one kind -------------------------------------------------------------------------------

    def _check_text(self, value: str, schema: Schema, place: str) -> None:
        self._check_bounds(len(value), schema, place, ("minLength", "maxLength", "characters"))
        pattern = schema.get("pattern")
        if not isinstance(pattern, str):
            return
        self._steps.take_compiling(pattern)
        if (most := schema_patterns.steps(pattern, len(value))) > schema_patterns.MAX_STEPS:
            return
        self._steps.take(most // PATTERN_STEPS_PER_STEP)
        if schema_patterns.matches(pattern, value) is False:
            self._fault(place, f"must match the pattern {pattern}")

    def _check_number(self, value: float, schema: Schema, place: str) -> None:
        self._check_bounds(value, schema, place, ("minimum", "maximum", ""))
        low, high = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
        if _is_number(low) and value <= low:
            self._fault(place, f"must be greater than {low}")
        if _is_number(high) and value >= high:
            self._fault(place, f"must be less than {high}")

    def _check_bounds(self, size: float, schema: Schema, place: str, words: tuple[str, str, str]) -> None:
        low, high, unit = schema.get(words[0]), schema.get(words[1]), words[2]
        if _is_number(low) and size < low:
            self._fault(place, f"must be at least {low} {unit}".rstrip())
        if _is_number(high) and size > high:
            self._fault(place, f"must be at most {high} {unit}".rstrip())

    def _check_list(self, value: list[Any], schema: Schema, place: str, depth: int) -> list[Any]:
        self._check_bounds(len(value), schema, place, ("minItems", "maxItems", "items long"))
        if "items" not in schema:
            return value
        return [self.check(item, schema["items"], f"{place}[{at}]", depth) for at, item in enumerate(value)]

    def _check_object(self, value: dict[str, Any], schema: Schema, place: str, depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        required = dict.fromkeys(name for name in schema.get("required") or () if isinstance(name, str))
        self._steps.take(len(required))
        extra = schema.get("additionalProperties", True)
        checked: dict[str, Any] = {}
        for name, item in value.items():
            where = f"{place}.{name}" if place else name
            if name not in properties and extra is False:
                self._fault(where, f"is unknown; known are {_listed(list(properties))}")
            elif name not in properties:
                checked[name] = self.check(item, extra, where, depth)
            elif item is not None or name in required or self._accepts_null(properties[name]):
                checked[name] = self.check(item, properties[name], where, depth)
        for name in required:
            if name not in value:
                self._fault(f"{place}.{name}" if place else name, "is required but missing")
        return checked

    def _accepts_null(self, schema: Any) -> bool:
        attempt = Checker(self._root, self._steps)
        attempt.check(None, schema, "")
        return not attempt.faults


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_of_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _type_name(value: Any) -> str:
    return next(name for name in ("boolean", "integer", *_TYPES) if _is_of_type(value, name))


def _same(value: Any, other: Any) -> bool:
    """Whether two values are equal in JSON, where true is not 1."""
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def _listed(choices: list[Any]) -> str:
    shown = ", ".join(_shown(choice) for choice in choices[:20])
    return f"{shown}, …" if len(choices) > 20 else shown or "no names"


def _shown(value: Any) -> str:
    """A value in a fault, cut before it is written out: it may be as long as the tool's schema."""
    if isinstance(value, str) and len(value) > MAX_SHOWN_CHARACTERS:
        return f"{value[:MAX_SHOWN_CHARACTERS]!r}…"
    return _SHORT.repr(value) if isinstance(value, list | dict) else repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = MAX_SHOWN_CHARACTERS
