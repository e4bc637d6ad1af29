"""Runs one model call from request to `ReplyDone`: send, decode, and retry where that is safe.

A call is retried only while no part of its reply has been forwarded, and only for overload, rate limits and broken
connections; `Retries` names every bound. If the vendor asks for a longer wait than `max_wait_seconds`, there is no
retry, and the error tells the caller how long to wait.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.errors import ModelError
from holdfast.core.model import Delta, Reply, ReplyDone
from holdfast.providers.failures import TransientError
from holdfast.providers.http.client import Http
from holdfast.providers.http.sse import Event


class Decoder(Protocol):
    """Decodes one reply of one vendor API, event by event."""

    finished: bool  # the terminal event has come; later events are ignored

    def feed(self, event: Event) -> Sequence[Delta]: ...

    def reply(self) -> Reply:
        """The whole reply. Raises `ModelError` if the terminal event has not come."""
        ...


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a call is tried and how long to wait between; tests pass their own `sleep` and `jitter`."""

    attempts: int = 3
    first_wait_seconds: float = 0.5
    max_wait_seconds: float = 20.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random

    def wait_seconds(self, error: ModelError, attempt: int) -> float | None:
        """How long to wait before the next attempt; None if there should be none."""
        retryable = isinstance(error, TransientError) or error.kind in ("llm_overloaded", "llm_rate_limit")
        if not retryable or attempt >= self.attempts:
            return None
        if error.retry_after_seconds is not None:
            wait = error.retry_after_seconds
            return wait if wait <= self.max_wait_seconds else None
        backoff = self.first_wait_seconds * 2.0 ** (attempt - 1) * (0.5 + self.jitter())
        return min(backoff, self.max_wait_seconds)


@dataclass(frozen=True, slots=True)
class Post:
    """A request ready to be sent, more than once if needed."""

    url: str
    headers: Mapping[str, str]
    body: bytes


async def stream_with_retries(
    http: Http, post: Post, new_decoder: Callable[[], Decoder], retries: Retries
) -> AsyncGenerator[Delta, None]:
    """Deltas as they arrive, `ReplyDone` last."""
    attempt = 1
    while True:
        forwarded = False
        decoder = new_decoder()
        try:
            async with http.post(post.url, headers=post.headers, body=post.body) as response:
                async for events in response:
                    for event in events:
                        for delta in _decoded(decoder, event):
                            forwarded = True
                            yield delta
                    if decoder.finished:
                        break
                reply = decoder.reply()
                await response.drain()
            yield ReplyDone(reply)
            return
        except ModelError as error:
            wait = None if forwarded else retries.wait_seconds(error, attempt)
            if wait is None:
                raise
        await retries.sleep(wait)
        attempt += 1


def _decoded(decoder: Decoder, event: Event) -> Sequence[Delta]:
    """Decode an event. One of an unexpected shape is the vendor's failure, not a bug of ours."""
    try:
        return decoder.feed(event)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as broken:
        detail = event.data[:500].decode("utf-8", "replace")
        raise ModelError("llm_error", "The model sent an event of an unknown shape.", detail=detail) from broken
