"""Packs the bodies of traces: removes secrets, cuts what is too large, compresses."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import orjson

MAX_BODY_BYTES = 1_000_000  # of one trace, before compression
HIDDEN = b"[hidden]"
COMPRESSION_LEVEL = 1  # of zlib: the result is a third larger than at the best level, in a fifth of the time


def pack(plain: bytes) -> bytes:
    return zlib.compress(plain, COMPRESSION_LEVEL)


def unpack(body: bytes) -> Any:
    return orjson.loads(zlib.decompress(body))


def without_secrets(plain: bytes, secrets: Sequence[bytes]) -> bytes:
    """The JSON with every secret replaced. A secret of digits may be part of a number, which is then hidden whole."""
    hidden = plain
    for secret in secrets:
        hidden = hidden.replace(secret, HIDDEN)
    if hidden is not plain:
        try:
            orjson.loads(hidden)
        except orjson.JSONDecodeError:
            return orjson.dumps(_hidden(orjson.loads(plain), [secret.decode() for secret in secrets]))
    return hidden


def _hidden(value: Any, secrets: Sequence[str]) -> Any:
    match value:
        case dict():
            return {_hidden(key, secrets): _hidden(item, secrets) for key, item in value.items()}
        case list():
            return [_hidden(item, secrets) for item in value]
        case str():
            for secret in secrets:
                value = value.replace(secret, HIDDEN.decode())
            return value
        case _:
            written = orjson.dumps(value).decode()
            return HIDDEN.decode() if any(secret in written for secret in secrets) else value


def fit(plain: bytes) -> bytes:
    """The body, cut to the size limit: first long texts, images before all others, then the oldest messages."""
    if len(plain) <= MAX_BODY_BYTES:
        return plain
    value = orjson.loads(plain)
    for longest, most in ((20_000, 10_000), (2_000, 10_000), (200, 1_000), (100, 20)):
        shorter = orjson.dumps(_cut(value, longest, most))
        if len(shorter) <= MAX_BODY_BYTES:
            return shorter
    said = f"{len(plain)} bytes are more than a trace can hold"
    return orjson.dumps({"request": {"left_out": said}, "response": _cut(value["response"], 100, 20)})


def _cut(value: Any, longest: int, most: int) -> Any:
    match value:
        case str() if len(value) > longest:
            return f"{value[:longest]}… [{len(value) - longest} characters left out]"
        case dict():
            return {key: _cut(item, longest, most) for key, item in value.items()}
        case list() if len(value) > most:
            kept = [_cut(item, longest, most) for item in (*value[: most // 2], *value[-most // 2 :])]
            return [*kept[: most // 2], f"[{len(value) - most} entries left out]", *kept[most // 2 :]]
        case list():
            return [_cut(item, longest, most) for item in value]
        case _:
            return value
