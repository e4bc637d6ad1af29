"""Decode a base64 image that a tool or MCP server returned, if its bytes are of a type that models accept."""

from __future__ import annotations

import base64
import binascii

from holdfast.core.conversation.images import kind_of_image
from holdfast.core.conversation.messages import Image


def image_from_base64(data: str) -> Image | None:
    try:
        kind = kind_of_image(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return None
    return Image(data=data, media_type=kind) if kind else None
