"""Clips tool returns that are too long and notes how much is missing, as the Letta API does.

A return is often JSON, and clipped JSON cannot be parsed. So in an object only one text value is clipped: its
`message`, or else its longest text. Everything else is clipped as plain text. Either way `... [truncated N chars]` is
appended.
"""

from __future__ import annotations

from json import JSONDecodeError, dumps, loads
from typing import Any

from holdfast.core.conversation.messages import Image, Text

Content = str | tuple[Text | Image, ...]


def clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... [truncated {len(text) - limit} chars]"


def clip_return(text: str, limit: int) -> str:
    """At most `limit` characters of the return, plus the note."""
    if len(text) <= limit:
        return text
    try:
        said = loads(text)
    except (JSONDecodeError, RecursionError):
        return clip(text, limit)
    return _clip_object(said, limit) or clip(text, limit)


def clip_content(content: Content, limit: int | None) -> Content:
    """Clip a return that may consist of parts: at most `limit` characters of all its texts together."""
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


def _clip_object(said: Any, limit: int) -> str | None:
    """The object with one text clipped; None if clipping one text is not enough."""
    texts = {key: value for key, value in said.items() if isinstance(value, str)} if isinstance(said, dict) else {}
    if not texts:
        return None
    key = "message" if "message" in texts else max(texts, key=lambda name: len(texts[name]))
    others = len(dumps({**said, key: ""}, ensure_ascii=False))
    room = limit - others
    if room <= 0:
        return None
    return dumps({**said, key: clip(texts[key], room)}, ensure_ascii=False)
