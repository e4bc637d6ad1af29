"""The binary frame in which a tool's result leaves its process: a small JSON head with sizes, then the raw contents.

    | 4 bytes: size of the head | 4 bytes: size of the contents | head, JSON | contents |

`run_job` packs, `sandbox.outcomes` unpacks. From its first line on, the tool controls its process, so a frame is
hostile input, and reading it blocks the event loop. That is why the contents are not inside the JSON: a few megabytes
of nested lists keep a JSON parser busy for seconds, while slicing bytes takes no time. The head has its own size limit.
"""

from __future__ import annotations

import json
from typing import Any

PREFIX_BYTES = 8
MAX_HEAD_BYTES = 64 * 1024
MAX_PARTS = 64


class TooLarge(Exception):
    """The contents exceed their limit."""


def frame_size(raw: bytes | bytearray) -> int | None:
    """The size of the whole frame, or None until the first 8 bytes have arrived."""
    if len(raw) < PREFIX_BYTES:
        return None
    return PREFIX_BYTES + int.from_bytes(raw[:4], "big") + int.from_bytes(raw[4:8], "big")


def max_frame_bytes(result_bytes: int) -> int:
    """The largest valid frame: the result and the memory changes have the same limit."""
    return PREFIX_BYTES + MAX_HEAD_BYTES + 2 * result_bytes


# ---- in the tool's process ------------------------------------------------------------------------------


def pack(reply: dict[str, Any]) -> bytes:
    contents: list[bytes] = []

    def size(text: str) -> int:
        contents.append(text.encode())
        return len(contents[-1])

    head: dict[str, Any] = {"status": reply["status"]}
    if "parts" in reply:
        head["parts"] = [_pack_part(part, size) for part in reply["parts"]]
    else:
        head["content"] = size(reply["content"])
    if reply.get("memory"):
        head["memory"] = [[label, _pack_value(value, size)] for label, value in reply["memory"].items()]
    packed_head, body = json.dumps(head).encode(), b"".join(contents)
    return len(packed_head).to_bytes(4, "big") + len(body).to_bytes(4, "big") + packed_head + body


def _pack_part(part: dict[str, Any], size: Any) -> list[Any]:
    if part["type"] == "text":
        return ["text", size(part["text"])]
    source = part["source"]
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        return ["image", size(source["data"])]
    return ["other", 0]


def _pack_value(value: Any, size: Any) -> int | bool | None:
    """The size of a memory block's new text; None for a removed block, False for a value that is not text."""
    if value is None:
        return None
    return size(value) if isinstance(value, str) else False


# ---- in the server --------------------------------------------------------------------------------------


def unpack(raw: bytes, result_bytes: int) -> dict[str, Any] | None:
    """The reply in the first frame, as it was packed; None if it is malformed. Raises `TooLarge`."""
    head_size, body_size = int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:8], "big")
    head, body = raw[PREFIX_BYTES : PREFIX_BYTES + head_size], raw[PREFIX_BYTES + head_size :]
    if head_size > MAX_HEAD_BYTES or len(head) != head_size or len(body) < body_size:
        return None
    try:
        fields = json.loads(head)
        return _unpack_head(fields, _Contents(body), result_bytes) if isinstance(fields, dict) else None
    except (ValueError, RecursionError, _Malformed):
        return None


class _Malformed(Exception):
    pass


class _Contents:
    """The bytes after the head, consumed piece by piece."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.taken = 0

    def text(self, size: Any) -> str:
        if not isinstance(size, int) or isinstance(size, bool) or size < 0 or self.taken + size > len(self._body):
            raise _Malformed
        piece = self._body[self.taken : self.taken + size]
        self.taken += size
        return piece.decode()


def _unpack_head(fields: dict[str, Any], contents: _Contents, result_bytes: int) -> dict[str, Any]:
    reply: dict[str, Any] = {"status": fields.get("status")}
    if "parts" in fields:
        reply["parts"] = [_unpack_part(part, contents) for part in _checked_list(fields["parts"], MAX_PARTS)]
    else:
        reply["content"] = contents.text(fields.get("content"))
    result_size = contents.taken
    if "memory" in fields:
        reply["memory"] = dict(
            _unpack_value(item, contents) for item in _checked_list(fields["memory"], MAX_HEAD_BYTES)
        )
    if result_size > result_bytes or contents.taken - result_size > result_bytes:
        raise TooLarge
    return reply


def _checked_list(value: Any, max_length: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > max_length:
        raise _Malformed
    return value


def _unpack_part(part: Any, contents: _Contents) -> dict[str, Any]:
    match part:
        case ["text", size]:
            return {"type": "text", "text": contents.text(size)}
        case ["image", size]:
            return {"type": "image", "source": {"type": "base64", "data": contents.text(size)}}
        case _:
            return {"type": "other"}


def _unpack_value(item: Any, contents: _Contents) -> tuple[str, Any]:
    match item:
        case [str(label), None | False as value]:
            return label, value
        case [str(label), size]:
            return label, contents.text(size)
        case _:
            raise _Malformed
