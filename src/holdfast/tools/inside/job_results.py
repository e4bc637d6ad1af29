"""Convert what a tool returned or raised into a reply that can be stored and shown to the model.

Called by `run_job`. Models and dataclasses become plain data; pydantic is never imported here. A result that cannot be
written as text becomes an error that says why.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import types
from collections.abc import ItemsView, KeysView, ValuesView
from typing import Any

from holdfast.tools.inside.result_frame import MAX_PARTS

# Types that become JSON lists: iterating over them has no side effects, and their str() tells a reader nothing.
_LIST_LIKE = (set, frozenset, tuple, types.GeneratorType, map, filter, zip, range, KeysView, ValuesView, ItemsView)


class Unreturnable(Exception):
    """The tool ran, but its result cannot be given to the model."""


def success_reply(value: Any, limit: int) -> dict[str, Any]:
    """The success reply for the tool's return value."""
    plain = _plain(value)
    parts = _parts(plain)
    if parts is not None:
        if len(json.dumps(parts)) > limit:
            raise Unreturnable(f"the result is larger than the limit of {limit} bytes")
        if len(parts) > MAX_PARTS:
            raise Unreturnable(f"the result has {len(parts)} content parts, more than the limit of {MAX_PARTS}")
        for part in parts:
            if part["type"] == "text":
                _check_text(part["text"], limit)
        return {"status": "success", "parts": parts}
    text = _text(plain)
    _check_text(text, limit)
    return {"status": "success", "content": text}


def _plain(value: Any) -> Any:
    """The data of a model or dataclass; any other value unchanged."""
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def _json_default(value: Any) -> Any:
    """`default` function for the JSON encoder: converts values inside a returned list or dict."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, _LIST_LIKE):
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
    if not isinstance(value, (dict, list, *_LIST_LIKE, bool, int, float, enum.Enum, datetime.date)):
        return str(value)
    try:
        plain = value if isinstance(value, dict | list | tuple | bool | int | float) else _json_default(value)
        return (
            plain
            if isinstance(plain, str)
            else json.dumps(plain, ensure_ascii=False, allow_nan=False, default=_json_default)
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


def _check_text(text: str, limit: int) -> None:
    if "\0" in text:
        raise Unreturnable("the result holds a NUL character, which cannot be stored as text")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise Unreturnable("the result holds half of a surrogate pair, which is no valid text") from None
    if size > limit:
        raise Unreturnable(f"the result is {size} bytes, larger than the limit of {limit} bytes")


def _parts(value: Any) -> list[dict[str, Any]] | None:
    """Content parts, if the result is a non-empty list of text and image parts, or one image; else None."""
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
    """`ExceptionType: message`; only the type if its `str()` is empty, and a note if its `str()` fails."""
    try:
        message = str(error)
    except Exception:
        message = "(its message could not be read)"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
