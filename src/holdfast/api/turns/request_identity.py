"""Identify a message request that is sent more than once: idempotency keys, and a digest of its body.

The `Idempotency-Key` header is a key. The otids of the messages are keys if the request runs in the background of a
conversation, as on the retired server; elsewhere they are plain data, and the same otid again is a new turn. The
official SDKs send no key when they retry, only a retry count (`x-stainless-retry-count`); such a retry is found by the
digest.

The digest covers every field that affects the run. Fields that only say how to receive the response (streamed or not,
by token or by step, with pings, in the background, which message types) are left out, so that a client that lost its
stream may ask again for the whole response.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated

import orjson
from fastapi import Depends, Request

from holdfast.api.http.disconnects import wait_for_disconnect
from holdfast.api.requests.message_bodies import SendIn
from holdfast.core.errors import InvalidArgument
from holdfast.core.run_request import RunRequest

RESPONSE_OPTIONS = {
    "streaming",
    "stream_tokens",
    "include_pings",
    "include_return_message_types",
    "include_compaction_messages",
    "background",
    "on_disconnect",
    "agent_id",
}
MAX_KEY_CHARS = 256


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """What the headers of a request say about it, and how to wait for its client to disconnect."""

    idempotency_key: str | None
    has_retry_count: bool  # the client's library numbers its attempts, so a retry can be recognized
    is_retry: bool
    wait_for_disconnect: Callable[[], Awaitable[None]]


async def _identity(request: Request) -> RequestIdentity:
    retries = request.headers.get("x-stainless-retry-count", "")
    has_count = retries.isascii() and retries.isdigit()
    is_retry = has_count and bool(retries.strip("0"))
    key = request.headers.get("idempotency-key")
    return RequestIdentity(key, has_count, is_retry, lambda: wait_for_disconnect(request))


IDENTITY_READER = _identity
IdentityDep = Annotated[RequestIdentity, Depends(_identity)]


def with_keys(request: RunRequest, body: SendIn, identity: RequestIdentity, *, otids_are_keys: bool) -> RunRequest:
    """The request with its idempotency keys, and with the digest of its body if a retry could be recognized by it."""
    otids = tuple(dict.fromkeys(key_of_otid(item.otid) for item in body.messages or () if item.otid))
    keys = (f"key:{identity.idempotency_key}",) if identity.idempotency_key else ()
    if any(len(key) > MAX_KEY_CHARS for key in (*otids, *keys)):
        raise InvalidArgument(f"An otid or Idempotency-Key may have at most {MAX_KEY_CHARS - 5} characters.")
    if not otids and not keys and not identity.has_retry_count:
        return request
    if otids_are_keys:
        otids, keys = (), (*otids, *keys)
    return replace(request, keys=keys, otids=otids, body_digest=_digest(body))


def key_of_otid(otid: str) -> str:
    return f"otid:{otid}"


def _digest(body: SendIn) -> str:
    shape = body.model_dump(mode="json", exclude=RESPONSE_OPTIONS, warnings=False)
    return hashlib.sha256(orjson.dumps(shape, option=orjson.OPT_SORT_KEYS)).hexdigest()
