"""Encodes text, images and tool arguments, as shared by all vendor APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from holdfast.core.conversation.messages import Image, Part, Text

JsonObject = dict[str, Any]  # a piece of a vendor's request


def encode_content(
    parts: Iterable[Part], text_of: Callable[[str], JsonObject], image_of: Callable[[Image], JsonObject]
) -> list[JsonObject]:
    """Text and images in the vendor's form. Blank text is left out, because vendors reject it."""
    content: list[JsonObject] = []
    for part in parts:
        match part:
            case Text(text=text) if text.strip():
                content.append(text_of(text))
            case Image():
                content.append(image_of(part))
            case _:
                pass
    return content


def arguments_object(arguments: str) -> JsonObject:
    """The arguments of an earlier call, for APIs that require an object; other text is wrapped in one."""
    try:
        parsed = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"_malformed": arguments}
