"""An image as tools and MCP servers return it, in base64: taken only if its bytes are one that models take."""

from __future__ import annotations

import base64
import binascii

from holdfast.core.messages import Image
from holdfast.core.pictures import kind_of_image


def image_from_base64(data: str) -> Image | None:
    try:
        kind = kind_of_image(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return None
    return Image(data=data, media_type=kind) if kind else None
