"""How a client names a request: by the otids of what it sends, or by an `Idempotency-Key` header.

The digest is of everything in the body that shapes the run. How one wants to watch it (streamed or not, by token or by
step, with pings, in the background, which kinds of messages) is left out, so a client that lost its stream may come
back for the whole answer.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Annotated

import orjson
from fastapi import Header

from holdfast.api.inputs import SendIn
from holdfast.core.errors import InvalidArgument
from holdfast.core.request import RunRequest

WATCHING = {
    "streaming",
    "stream_tokens",
    "include_pings",
    "include_return_message_types",
    "include_compaction_messages",
    "background",
    "agent_id",
}
MAX_KEY_CHARS = 256

IdempotencyKey = Annotated[str | None, Header()]


def named(request: RunRequest, body: SendIn, idempotency_key: str | None) -> RunRequest:
    """The request with its sender's names for it, if it has any."""
    keys = [key_of_otid(item.otid) for item in body.messages or () if item.otid]
    if idempotency_key:
        keys.append(f"key:{idempotency_key}")
    if any(len(key) > MAX_KEY_CHARS for key in keys):
        raise InvalidArgument(f"An otid or Idempotency-Key may have at most {MAX_KEY_CHARS - 5} characters.")
    if not keys:
        return request
    return replace(request, keys=tuple(dict.fromkeys(keys)), body_digest=_digest(body))


def key_of_otid(otid: str) -> str:
    return f"otid:{otid}"


def _digest(body: SendIn) -> str:
    shape = body.model_dump(mode="json", exclude=WATCHING, warnings=False)
    return hashlib.sha256(orjson.dumps(shape, option=orjson.OPT_SORT_KEYS)).hexdigest()
