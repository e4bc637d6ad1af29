"""Makes arguments for a tool call from the values in a text and the tool's JSON schema, for the demo model.

Values are used up as they are taken, so three calls made from one text get three different inputs; the last one is
reused when there are too few. Explicit `key=value` pairs win; then each parameter, in the schema's order, takes the
next value of its type. A required parameter always gets a value of the right type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

_QUOTED = re.compile(r"(?<!\w)'([^'\n]*)'(?!\w)|\"([^\"\n]*)\"|`([^`\n]*)`")
_PAIR = re.compile(r"\b([A-Za-z_]\w*)\s*(?:=|:\s)\s*('[^']*'|\"[^\"]*\"|[^\s,;]+)")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w)")
_AFTER = re.compile(r"\b(?:to|for|with|about|of|on)\b\s+(.+)", re.DOTALL | re.IGNORECASE)
MAX_WORDS_CHARS = 200


class Clues:
    """The values in a text that can become arguments."""

    def __init__(self, words: str, whole: dict[str, Any], pairs: dict[str, str]) -> None:
        self.whole = whole
        self.pairs = pairs
        self.quoted = [next(text for text in match if text is not None) for match in _matches(words)]
        self.numbers = _NUMBER.findall(_QUOTED.sub(" ", words))
        after = _AFTER.search(words)
        self.words = (after[1] if after else words).strip(" .,:;\n\"'`")[:MAX_WORDS_CHARS]

    @classmethod
    def of(cls, words: str) -> Clues:
        start, end = words.find("{"), words.rfind("}")
        if 0 <= start < end:
            try:
                whole = orjson.loads(words[start : end + 1])
            except orjson.JSONDecodeError:
                whole = None
            if isinstance(whole, dict):
                return cls(words[:start] + words[end + 1 :], whole, {})
        pairs = {key: value.strip("'\"") for key, value in _PAIR.findall(words)}
        return cls(words, {}, pairs)


def _matches(words: str) -> list[tuple[str | None, ...]]:
    return [match.groups() for match in _QUOTED.finditer(words)]


def arguments_from(schema: Mapping[str, Any], clues: Clues) -> dict[str, Any]:
    """Arguments that fit the schema's types. Used values are removed from the clues."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    if clues.whole:
        return dict(clues.whole)
    given = {name: clues.pairs[name] for name in properties if name in clues.pairs}
    for value in given.values():
        _consume(clues, value)
    required = schema.get("required") or ()
    arguments: dict[str, Any] = {}
    for name, wanted in properties.items():
        value = _typed(wanted, given[name]) if name in given else _from_clues(wanted, clues)
        if value is None and name in required:
            value = _fallback(wanted, clues)
        if value is not None:
            arguments[name] = value
    return arguments


def _consume(clues: Clues, value: str) -> None:
    for held in (clues.quoted, clues.numbers):
        if value in held:
            held.remove(value)


def type_of(schema: Mapping[str, Any]) -> str:
    """The schema's type; of a union, the first that is not null."""
    options = schema.get("anyOf") or schema.get("oneOf") or ()
    named = schema.get("type") or next(
        (type_of(option) for option in options if option.get("type") != "null"), "string"
    )
    if isinstance(named, list):
        named = next((one for one in named if one != "null"), "string")
    return str(named)


def _from_clues(schema: Mapping[str, Any], clues: Clues) -> Any:
    """The next clue of the parameter's type, or None."""
    match type_of(schema):
        case "array" if clues.quoted:
            taken, clues.quoted = clues.quoted, []
            return taken
        case "integer" | "number" if clues.numbers:
            return _typed(schema, _next(clues.numbers))
        case "string" if schema.get("enum"):
            return next((one for one in schema["enum"] if str(one) in (*clues.quoted, *clues.words.split())), None)
        case "string" if clues.quoted:
            return _next(clues.quoted)
        case _:
            return None


def _next(held: list[str]) -> str:
    """The next value; the last one stays, for calls that find no other."""
    return held.pop(0) if len(held) > 1 else held[0]


def _fallback(schema: Mapping[str, Any], clues: Clues) -> Any:
    """A plausible value for a required parameter without a clue in the text."""
    if "default" in schema:
        return schema["default"]
    if enum := schema.get("enum"):
        return enum[0]
    match type_of(schema):
        case "integer" | "number":
            quoted = next((text for text in clues.quoted if _NUMBER.fullmatch(text)), None)
            return _typed(schema, quoted) if quoted else schema.get("minimum", 1)
        case "boolean":
            return not re.search(r"\b(false|no|off)\b", clues.words, re.IGNORECASE)
        case "array":
            return []
        case "object":
            return arguments_from(schema, clues)
        case "null":
            return None
        case _:
            return _next(clues.numbers) if clues.numbers else clues.words or "something"


def _typed(schema: Mapping[str, Any], text: str) -> Any:
    """The text as a value of the schema's type; if it does not fit, it stays text, as a model's might."""
    match type_of(schema):
        case "integer" | "number" | "boolean" | "array" | "object":
            try:
                return orjson.loads(text.lower() if type_of(schema) == "boolean" else text)
            except orjson.JSONDecodeError:
                return text
        case _:
            return text
