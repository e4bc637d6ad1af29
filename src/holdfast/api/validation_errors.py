"""The 422 response to a request of the wrong form: which field, what is expected, what was given.

`detail` is one text, as clients expect; `errors` holds the same in parts for programs. A text from the request is only
repeated where one of a few words is expected, and never from a field that may hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.limits import MAX_ERROR_CHARS, MAX_ERRORS_SHOWN

MAX_GIVEN_CHARS = 60
# Kinds of errors where one of a few words is expected, so that the word that was given helps and is no secret.
_WORDS_EXPECTED = frozenset({"literal_error", "enum", "union_tag_invalid"})
_MAY_HOLD_SECRETS = re.compile(
    r"^(?!max_).*(key|token|secret|password|credential|auth|env|header|args|variable)", re.IGNORECASE
)
_UUID_PATTERN = re.compile(r"\^(?P<prefix>[a-z_-]+)-\[0-9a-f\]\{8\}")
_WORDING = (
    ("Input should be ", "expected "),
    ("Value error, ", ""),
    ("Field required", "is required"),
    ("Extra inputs are not permitted", "is not a field here"),
)
_PLACES = {"query": "query parameter {}", "path": "{} in the path", "header": "header {}"}

Shown = dict[str, Any]


def validation_response(error: RequestValidationError) -> JsonResponse:
    shown: dict[str, Shown] = {}  # by field: each branch of a union reports an error of its own
    examples: list[str] = []
    for one in error.errors()[:MAX_ERRORS_SHOWN]:
        field, expected = _field(one, error.body), _expected(one)
        if found := _UUID_PATTERN.search(str(one.get("ctx", {}).get("pattern", ""))):
            expected = f"String should match pattern '{found['prefix']}-{{uuid4}}'"
            examples.append(f"{found['prefix']}-123e4567-e89b-42d3-8456-426614174000")
        if field not in shown:
            given = _given(one)
            shown[field] = {"field": field, "type": one["type"], "expected": expected, "given": given}
        elif expected not in shown[field]["expected"]:
            also = expected.removeprefix("expected ")
            shown[field]["expected"] = _shortened(f"{shown[field]['expected']} or {also}")
    body: Shown = {"trace_id": "", "detail": "\n".join(map(_line, shown.values())), "errors": list(shown.values())}
    return JsonResponse(body | {"examples": examples} if examples else body, 422)


def _line(shown: Shown) -> str:
    field, given = shown["field"], shown["given"]
    text = f"{field} {shown['expected']}" if shown["expected"].startswith("is ") else f"{field}: {shown['expected']}"
    return f"{text}; given {given}" if given else text


def _expected(one: Mapping[str, Any]) -> str:
    if one["type"] == "union_tag_invalid":
        return f"expected one of {one.get('ctx', {}).get('expected_tags', 'the known types')}"
    text = str(one["msg"])
    for start, better in _WORDING:
        if text.startswith(start):
            text = better + text.removeprefix(start)
    return _shortened(text)


def _field(one: Mapping[str, Any], body: Any) -> str:
    """The field as a client would write it: `messages[0].role`."""
    place, *parts = one["loc"]
    if place in _PLACES:
        return _PLACES[place].format(_shortened(".".join(map(str, parts))))
    if not parts:
        return "body"
    named = _path_in(body, parts, is_missing=one["type"] == "missing")
    return _shortened(named or ".".join(map(str, parts)))


def _path_in(body: Any, parts: Sequence[str | int], *, is_missing: bool) -> str:
    """The parts that lead through the body. Pydantic also names the branches of unions, which are left out."""
    named, here = "", body
    for position, part in enumerate(parts):
        is_last = position == len(parts) - 1
        if isinstance(part, int):
            named += f"[{part}]"
            here = here[part] if isinstance(here, list) and part < len(here) else None
        elif isinstance(here, dict) and part in here:
            named += f".{part}"
            here = here[part]
        elif is_missing and is_last:
            named += f".{part}"
    return named.removeprefix(".")


def _given(one: Mapping[str, Any]) -> str | None:
    """What was given: a value where that is harmless, else its kind."""
    place, *parts = one["loc"]
    if one["type"] == "missing" or "input" not in one or not parts:
        return None
    value = one["input"]
    is_secret = any(_MAY_HOLD_SECRETS.search(str(part)) for part in parts)
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number" if is_secret else _cut(repr(value))
        case str():
            is_harmless = not is_secret and (place in _PLACES or one["type"] in _WORDS_EXPECTED)
            return _cut(repr(value)) if is_harmless else f"a text of {len(value)} characters"
        case list():
            return f"a list of {len(value)} items"
        case dict():
            return "an object"
        case _:
            return None


def _cut(text: str) -> str:
    return f"{text[:MAX_GIVEN_CHARS]}…" if len(text) > MAX_GIVEN_CHARS else text


def _shortened(text: str) -> str:
    """A text that may quote the request, cut to `MAX_ERROR_CHARS`."""
    return f"{text[:MAX_ERROR_CHARS]}…" if len(text) > MAX_ERROR_CHARS else text
