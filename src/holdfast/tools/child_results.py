"""Out of a tool's process: whatever the tool returned or raised, as one frame that can be stored and read.

Called by `child`. Models and dataclasses become their data; pydantic is never imported here. A result that cannot be
told as text is an error that says why.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import types
from collections.abc import ItemsView, KeysView, ValuesView
from typing import Any

# What a list can be made of without doing anything else, and whose own text would say nothing.
_LISTED = (set, frozenset, tuple, types.GeneratorType, map, filter, zip, range, KeysView, ValuesView, ItemsView)


class Unreturnable(Exception):
    """The tool ran, but what it returned cannot be handed to the model."""


def reply(value: Any, limit: int) -> dict[str, Any]:
    """A success frame for whatever the tool returned."""
    plain = _plain(value)
    parts = _parts(plain)
    if parts is not None:
        if len(json.dumps(parts)) > limit:
            raise Unreturnable(f"the result is larger than the limit of {limit} bytes")
        return {"status": "success", "parts": parts}
    text = _text(plain)
    _check(text, limit)
    return {"status": "success", "content": text}


def _plain(value: Any) -> Any:
    """Models and dataclasses become their data, at any depth that the JSON encoder reaches."""
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def _inner(value: Any) -> Any:
    """For the JSON encoder: what lies inside a returned list or dict."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, _LISTED):
        return list(value)
    plain = _plain(value)
    return plain if plain is not value else str(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.value if isinstance(value, enum.Enum) else value
    if value is None:
        return "None"
    if isinstance(value, bytes):
        return _decoded(value)
    if not isinstance(value, (dict, list, *_LISTED, bool, int, float, enum.Enum, datetime.date)):
        return str(value)
    try:
        coded = value if isinstance(value, dict | list | tuple | bool | int | float) else _inner(value)
        return (
            coded if isinstance(coded, str) else json.dumps(coded, ensure_ascii=False, allow_nan=False, default=_inner)
        )
    except RecursionError:
        raise Unreturnable("the result is nested too deeply or contains itself") from None
    except (TypeError, ValueError) as error:
        raise Unreturnable(f"the result cannot be written as JSON: {error}") from None


def _decoded(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise Unreturnable("the result is bytes that are not UTF-8 text; return a string") from None


def _check(text: str, limit: int) -> None:
    if "\0" in text:
        raise Unreturnable("the result holds a NUL character, which cannot be stored as text")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise Unreturnable("the result holds half of a surrogate pair, which is no valid text") from None
    if size > limit:
        raise Unreturnable(f"the result is {size} bytes, larger than the limit of {limit} bytes")


def _parts(value: Any) -> list[dict[str, Any]] | None:
    """Content parts, if the result is exactly that: a non-empty list of text and image parts, or one image."""
    listed = [value] if isinstance(value, dict) and value.get("type") == "image" else value
    if not isinstance(listed, list) or not listed or not all(_is_part(item) for item in listed):
        return None
    return listed


def _is_part(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    if item.get("type") == "text":
        return isinstance(item.get("text"), str)
    return item.get("type") == "image" and isinstance(item.get("source"), dict)


def text_of_error(error: BaseException) -> str:
    """`ExceptionType: message`; an exception whose own text fails is still named."""
    try:
        said = str(error)
    except Exception:
        said = "(its message could not be read)"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
