"""How a request is known again: by the otids of what it sends, by an `Idempotency-Key` header, or because the client's
library says that it tries again.

The digest is of everything in the body that shapes the run. How one wants to watch it (streamed or not, by token or by
step, with pings, in the background, which kinds of messages) is left out, so a client that lost its stream may come
back for the whole answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated

import orjson
from fastapi import Depends, Header, Request

from holdfast.api.hanging_up import hung_up
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


@dataclass(frozen=True, slots=True)
class Sender:
    """What the headers of a request say of it: its name, and whether the client's library counts its tries and has sent
    it before."""

    key: str | None
    counts: bool
    again: bool
    hangs_up: Callable[[], Awaitable[None]]


async def _sender(request: Request, idempotency_key: Annotated[str | None, Header()] = None) -> Sender:
    tries = request.headers.get("x-stainless-retry-count", "")
    counts = tries.isascii() and tries.isdigit()
    return Sender(idempotency_key, counts, counts and bool(tries.strip("0")), lambda: hung_up(request))


FromSender = Annotated[Sender, Depends(_sender)]


def named(request: RunRequest, body: SendIn, sender: Sender) -> RunRequest:
    """The request with its sender's names for it, if it has any, and with its digest if it may come again."""
    keys = [key_of_otid(item.otid) for item in body.messages or () if item.otid]
    if sender.key:
        keys.append(f"key:{sender.key}")
    if any(len(key) > MAX_KEY_CHARS for key in keys):
        raise InvalidArgument(f"An otid or Idempotency-Key may have at most {MAX_KEY_CHARS - 5} characters.")
    if not keys and not sender.counts:
        return request
    return replace(request, keys=tuple(dict.fromkeys(keys)), body_digest=_digest(body))


def key_of_otid(otid: str) -> str:
    return f"otid:{otid}"


def _digest(body: SendIn) -> str:
    shape = body.model_dump(mode="json", exclude=WATCHING, warnings=False)
    return hashlib.sha256(orjson.dumps(shape, option=orjson.OPT_SORT_KEYS)).hexdigest()
