"""Reads the arguments that a model wrote for a tool call: JSON text in, checked values out, or words for the model.

The engine calls `parse_arguments` before a call runs; a human who is asked first sees them as they are. Every fault is
a `TellTheModel` whose text says which argument is wrong and how, so that the model can do it right the next time.
`conformity` does the checking against the schema; here is what concerns the text: size, depth, duplicate names,
characters that cannot be stored.

The text is data. Nothing of it is ever evaluated, and nothing is mended that would change what the model said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.core.conformity import Checker
from holdfast.core.errors import TellTheModel

TEXT_BYTES = 1024 * 1024
DEEPEST = 64
FAULTS_TOLD = 5
# Names that models add by habit, from the prompts of other systems; only a schema that knows them gets them.
_HABITS = frozenset({"request_heartbeat", "inner_thoughts", "thinking"})


def parse_arguments(text: str, schema: Mapping[str, Any], filled: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`schema` is a tool's schema (`{"name", "parameters"}`) or just its parameters; what a rule has `filled` in wins
    over what the model wrote."""
    parameters = _parameters(schema)
    given = _loaded(text) | dict(filled or {})
    known = parameters.get("properties", {})
    kept = {name: value for name, value in given.items() if name in known or name not in _HABITS}
    checker = Checker(parameters)
    checked = checker.check_arguments(kept)
    if checker.faults:
        told = checker.faults[:FAULTS_TOLD]
        more = len(checker.faults) - len(told)
        rest = f"; and {more} more" if more else ""
        raise TellTheModel(f"The arguments do not fit the tool's schema: {'; '.join(told)}{rest}.")
    return checked


def _parameters(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = schema.get("parameters")
    return inner if isinstance(inner, Mapping) and "properties" not in schema else schema


def _loaded(text: str) -> dict[str, Any]:
    """The JSON object in the text. No text is no arguments; an object inside a JSON string is taken out once."""
    if len(text) > TEXT_BYTES:
        raise TellTheModel(f"The arguments are larger than {TEXT_BYTES} characters; send less.")
    if not text.strip():
        return {}
    value = _json(text)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _json(value)
    if not isinstance(value, dict):
        raise TellTheModel("The arguments must be one JSON object with the parameters' names as keys.")
    _check_storable(value)
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise TellTheModel(
            f"The arguments are not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}. "
            "Call the tool again with one valid JSON object."
        ) from None
    except RecursionError:
        raise TellTheModel(f"The arguments are nested deeper than {DEEPEST} levels.") from None
    except ValueError as error:
        raise TellTheModel(f"The arguments are not valid JSON: {error}") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _value in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} is given twice in one object.")
    return made


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value.")


def _check_storable(value: Any) -> None:
    """Bounded depth, and only text that a database can keep. A loop, since the depth is what is in doubt."""
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if depth > DEEPEST:
            raise TellTheModel(f"The arguments are nested deeper than {DEEPEST} levels.")
        if isinstance(item, str):
            _check_text(item)
        elif isinstance(item, list):
            waiting.extend((inner, depth + 1) for inner in item)
        elif isinstance(item, dict):
            for name, inner in item.items():
                _check_text(name)
                waiting.append((inner, depth + 1))


def _check_text(text: str) -> None:
    if "\0" in text:
        raise TellTheModel("The arguments hold a NUL character; leave it out.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TellTheModel("The arguments hold half of a surrogate pair; write the character whole.") from None
