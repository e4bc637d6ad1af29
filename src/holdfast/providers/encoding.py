"""What the wires share when they write messages: words and images, cutting long returns, strict schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from holdfast.core.clipping import clip_return
from holdfast.core.messages import Image, Part, Text

Wire = dict[str, Any]


def cut(content: str | tuple[Text | Image, ...], limit: int | None) -> str | tuple[Text | Image, ...]:
    """A tool's return with no more than `limit` characters of text, and how much was left out."""
    if limit is None:
        return content
    if isinstance(content, str):
        return clip_return(content, limit)
    kept: list[Text | Image] = []
    for part in content:
        if isinstance(part, Text):
            text = clip_return(part.text, limit)
            limit = max(0, limit - len(part.text))
            part = Text(text)
        kept.append(part)
    return tuple(kept)


def shown(parts: Iterable[Part], say: Callable[[str], Wire], picture: Callable[[Image], Wire]) -> list[Wire]:
    """What a model is shown, in the wire's own form: words and images, and no blank text."""
    content: list[Wire] = []
    for part in parts:
        match part:
            case Text(text=text) if text.strip():
                content.append(say(text))
            case Image():
                content.append(picture(part))
            case _:
                pass
    return content


def arguments_object(arguments: str) -> Wire:
    """The arguments of an old call for wires that want an object; what is none is kept in one."""
    try:
        said = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        said = None
    return said if isinstance(said, dict) else {"_malformed": arguments}


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema as vendors want it for strict calls (closed, all required), or None if it cannot say that.

    Optional parameters have no strict form that keeps their meaning, so such a tool is offered without `strict`.
    """
    if schema.get("type") == "array" and isinstance(items := schema.get("items"), Mapping):
        strict_items = strict_schema(items)
        return None if strict_items is None else {**schema, "items": strict_items}
    if schema.get("type") != "object":
        return None if "$ref" in schema or "anyOf" in schema or "allOf" in schema else dict(schema)
    properties = schema.get("properties") or {}
    if set(properties) != set(schema.get("required") or ()) or schema.get("additionalProperties"):
        return None
    strict = {name: strict_schema(sub) for name, sub in properties.items()}
    if None in strict.values():
        return None
    return {**schema, "properties": strict, "required": list(properties), "additionalProperties": False}
