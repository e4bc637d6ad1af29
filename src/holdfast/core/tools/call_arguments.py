"""Parses and validates the JSON arguments that a model wrote for a tool call.

The engine calls `parse_arguments` before a call runs. Every fault raises `TellTheModel` with a text that says which
argument is wrong and how, so that the model can correct it.

`merge_arguments` adds the arguments that a tool rule fills in, and `as_the_tool_gets_them` writes the arguments out as
they are after all checks. The loop uses both on each call of a reply, so that what is judged, shown and stored is what
the tool gets.

`json_schema` checks the values against the tool's schema. This file checks the text: size, depth, duplicate names,
characters that cannot be stored. Nothing is ever evaluated, and nothing is corrected that would change the meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.core.errors import TellTheModel
from holdfast.core.tools.json_schema import Checker

MAX_CHARACTERS = 1024 * 1024
MAX_VALUES = 60_000  # by the commas between them; those in texts count too, but texts have far fewer
MAX_DEPTH = 64
MAX_FAULTS_SHOWN = 5
# Argument names that models add because other systems ask for them; dropped unless the schema has them.
_IGNORED_NAMES = frozenset({"request_heartbeat", "inner_thoughts", "thinking"})


def parse_arguments(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The checked arguments. `schema` is a tool's schema (`{"name", "parameters"}`) or just its parameters."""
    return _checked(_loaded(text), _parameters(schema))


def _checked(given: dict[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    known = parameters.get("properties", {})
    kept = {name: value for name, value in given.items() if name in known or name not in _IGNORED_NAMES}
    checker = Checker(parameters)
    checked = checker.check_arguments(kept)
    if checker.faults:
        told = checker.faults[:MAX_FAULTS_SHOWN]
        more = len(checker.faults) - len(told)
        rest = f"; and {more} more" if more else ""
        raise TellTheModel(f"The arguments do not fit the tool's schema: {'; '.join(told)}{rest}.")
    return checked


def merge_arguments(text: str, filled: Mapping[str, Any]) -> str:
    """The text with the arguments that a rule fills in; they override the model's. A text that cannot be parsed is
    returned unchanged: `parse_arguments` refuses it when the call is about to run."""
    try:
        given = _loaded(text)
    except TellTheModel:
        return text
    return _written(given | dict(filled))


def check_filled(filled: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Raise `TellTheModel` if arguments that a rule fills in do not fit the schema, whatever the model adds."""
    _checked(dict(filled), {**_parameters(schema), "required": []})


def _written(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def as_the_tool_gets_them(text: str, schema: Mapping[str, Any]) -> str:
    """The text with the conversions that `parse_arguments` makes: null for an optional argument means that it is left
    out, 3.0 for an integer is 3, and names that only other systems ask for are dropped. A text that has none of these
    stays as the model wrote it, and so does one that will be refused."""
    try:
        given = _loaded(text)
        checked = _checked(given, _parameters(schema))
    except TellTheModel:
        return text
    written = _written(checked)
    is_encoded_twice = text.lstrip().startswith('"')
    return written if is_encoded_twice or written != _written(given) else text


def arguments_object(text: str) -> Mapping[str, Any] | None:
    """The arguments as a JSON object; None if they are none that a tool could get."""
    try:
        return _loaded(text)
    except TellTheModel:
        return None


def _parameters(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = schema.get("parameters")
    return inner if isinstance(inner, Mapping) and "properties" not in schema else schema


def _loaded(text: str) -> dict[str, Any]:
    """The JSON object in the text. An empty text means no arguments; a JSON string with an object in it is parsed once
    more, since some models encode twice."""
    if len(text) > MAX_CHARACTERS:
        raise TellTheModel(f"The arguments are larger than {MAX_CHARACTERS} characters; send less.")
    if text.count(",") > MAX_VALUES:
        raise TellTheModel(f"The arguments have more than {MAX_VALUES} values; send less.")
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
        raise TellTheModel(f"The arguments are nested deeper than {MAX_DEPTH} levels.") from None
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
    """Check the depth, and that a database can store every text. Not recursive, since the depth is not yet bounded."""
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise TellTheModel(f"The arguments are nested deeper than {MAX_DEPTH} levels.")
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
