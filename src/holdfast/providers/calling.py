"""One model call from request to `ReplyDone`: send, decode, and try again where that is safe.

A call is tried again only while nothing of its reply has been passed on, only for overload, rate limit and
broken connections, and only so often: `Retries` names every bound. A vendor that asks for a longer wait than we
are willing to hold a run for gets no retry; the caller learns the wait from the error instead.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.errors import ModelError
from holdfast.core.model import Delta, Reply, ReplyDone
from holdfast.providers.failures import Fleeting
from holdfast.providers.http import Http
from holdfast.providers.sse import Event


class Decoder(Protocol):
    """Understands one reply of one wire, event by event."""

    finished: bool  # the terminal event has come; nothing after it matters

    def feed(self, event: Event) -> Sequence[Delta]: ...

    def reply(self) -> Reply:
        """The whole reply. Raises `ModelError` if the terminal event has not come."""
        ...


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how patiently a call is tried; `sleep` and `jitter` are arguments so that tests do not wait."""

    attempts: int = 3
    first_wait_seconds: float = 0.5
    max_wait_seconds: float = 20.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random

    def wait_seconds(self, error: ModelError, attempt: int) -> float | None:
        """How long to wait before the next attempt; None if there should be none."""
        worth_it = isinstance(error, Fleeting) or error.kind in ("llm_overloaded", "llm_rate_limit")
        if not worth_it or attempt >= self.attempts:
            return None
        if error.retry_after_seconds is not None:
            asked = error.retry_after_seconds
            return asked if asked <= self.max_wait_seconds else None
        backoff = self.first_wait_seconds * 2.0 ** (attempt - 1) * (0.5 + self.jitter())
        return min(backoff, self.max_wait_seconds)


@dataclass(frozen=True, slots=True)
class Post:
    """A request ready to be sent, as often as needed."""

    url: str
    headers: Mapping[str, str]
    body: bytes


async def call(
    http: Http, post: Post, new_decoder: Callable[[], Decoder], retries: Retries
) -> AsyncGenerator[Delta, None]:
    """Deltas as they arrive, `ReplyDone` last."""
    attempt = 1
    while True:
        passed_on = False
        decoder = new_decoder()
        try:
            async with http.post(post.url, headers=post.headers, body=post.body) as answer:
                async for events in answer:
                    for event in events:
                        for delta in _decoded(decoder, event):
                            passed_on = True
                            yield delta
                    if decoder.finished:
                        break
                reply = decoder.reply()
                await answer.drain()
            yield ReplyDone(reply)
            return
        except ModelError as error:
            wait = None if passed_on else retries.wait_seconds(error, attempt)
            if wait is None:
                raise
        await retries.sleep(wait)
        attempt += 1


def _decoded(decoder: Decoder, event: Event) -> Sequence[Delta]:
    """An event of an unexpected shape is the vendor's failure, not ours."""
    try:
        return decoder.feed(event)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as broken:
        said = event.data[:500].decode("utf-8", "replace")
        raise ModelError("llm_error", "The model sent an event that makes no sense.", detail=said) from broken
