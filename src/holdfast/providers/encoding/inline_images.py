"""Images as vendor APIs take them: inline as base64 where we have the bytes, otherwise by URL."""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.core.conversation.messages import Image

OMITTED = "[Image omitted]"
DEFAULT_TYPE = "image/png"
_DATA_URL = re.compile(r"data:([^;,]+);base64,(.+)", re.DOTALL)


class Inline(NamedTuple):
    media_type: str
    data: str

    @property
    def data_url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


def inline(image: Image) -> Inline | None:
    """The image by value, or None if we only know its URL."""
    if image.data:
        return Inline(image.media_type or DEFAULT_TYPE, image.data)
    if image.url and (found := _DATA_URL.fullmatch(image.url)):
        return Inline(found[1], found[2])
    return None


def url_of(image: Image) -> str | None:
    """A URL that holds the image or leads to it."""
    held = inline(image)
    return held.data_url if held else image.url
