"""What the wires share when they write messages: words and images."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from holdfast.core.messages import Image, Part, Text

Wire = dict[str, Any]


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
