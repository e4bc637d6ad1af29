"""Reject JSON bodies with too many values, too many levels of nesting, or too much text.

The number of values is counted in the raw bytes, before parsing: sixteen million zeros in 32 MB would become half a
gigabyte of objects and block the event loop. Counting goes chunk by chunk and lets other tasks run in between.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi.exceptions import RequestValidationError

from holdfast.api.http.limits import MAX_BODY_DEPTH, MAX_BODY_TEXT_CHARS, MAX_BODY_VALUES

LARGE_BODY_BYTES = 64 * 1024  # a smaller body cannot hold too many values
_CHUNK_BYTES = 128 * 1024
_IMAGE_DATA_KEY = "data"  # the base64 text of an image, which is passed on unread


async def reject_too_many_values(raw: bytes) -> None:
    """Reject a body with more than `MAX_BODY_VALUES` values. Invalid JSON may be counted wrongly; the parser rejects it
    later."""
    inside, escaped, count = False, False, 0
    for start in range(0, len(raw), _CHUNK_BYTES):
        chunk = raw[start : start + _CHUNK_BYTES]
        if escaped:
            chunk = chunk[1:]
        escaped = (len(chunk) - len(chunk.rstrip(b"\\"))) % 2 == 1
        pieces = chunk.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[1::2] if inside else pieces[::2])
        inside ^= len(pieces) % 2 == 0
        count += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if count > MAX_BODY_VALUES:
            raise body_error("too_long", f"A body may hold at most {MAX_BODY_VALUES} values; send fewer at once")
        await asyncio.sleep(0)


def reject_deep_or_long(data: Any) -> None:
    """Reject a value with more than `MAX_BODY_DEPTH` levels or more than `MAX_BODY_TEXT_CHARS` of text."""
    depth, chars = 0, 0
    level: list[Any] = [data]
    while level:
        depth += 1
        if depth > MAX_BODY_DEPTH:
            raise body_error("too_deep", f"Objects and lists may be nested at most {MAX_BODY_DEPTH} deep")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                chars += sum(map(len, value))
                chars += sum(
                    len(item) for key, item in value.items() if isinstance(item, str) and key != _IMAGE_DATA_KEY
                )
                below.extend(item for item in value.values() if isinstance(item, (dict, list)))
            else:
                chars += sum(len(item) for item in value if isinstance(item, str))
                below.extend(item for item in value if isinstance(item, (dict, list)))
        if chars > MAX_BODY_TEXT_CHARS:
            raise body_error("too_long", f"The text of a body may have at most {MAX_BODY_TEXT_CHARS} characters")
        level = below


def body_error(kind: str, why: str) -> RequestValidationError:
    return RequestValidationError([{"type": kind, "loc": ("body",), "msg": why}])
