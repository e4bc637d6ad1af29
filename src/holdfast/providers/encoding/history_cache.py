"""Caches each conversation's encoded history between requests, so that a step encodes only what is new.

A conversation is sent again in full on every step. The cache holds its encoded prefix, up to the last message at which
turns can be split; if the messages up to there are unchanged, only the rest is encoded. So the 400th turn costs about
what the 10th does. A change further up (a compaction, an edited message) encodes everything again. The system message
is left out, since it is rewritten whenever memory changes.

Cached values are shared between requests: `append` may add to the list it is given or replace an item of it, but must
never change an item in place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from holdfast.core.conversation.messages import Message, SystemBody
from holdfast.providers.encoding.content import JsonObject
from holdfast.providers.encoding.turns import Turn, begins_a_turn, turns

MAX_CACHED_CHARS = 64 * 1024 * 1024

Append = Callable[[list[JsonObject], Turn, int | None], None]


class _Prefix(NamedTuple):
    """The stable prefix of a conversation and its encoded form."""

    messages: Sequence[Message]
    limit: int | None
    encoded: list[JsonObject]
    chars: int


_EMPTY = _Prefix((), None, [], 0)


class HistoryCache:
    """Encoded prefixes of recently sent conversations, at most `max_chars` in total; the oldest are dropped."""

    def __init__(self, append: Append, *, max_chars: int = MAX_CACHED_CHARS) -> None:
        self._append = append
        self._max_chars = max_chars
        self._chars = 0
        self._prefixes: OrderedDict[str, _Prefix] = OrderedDict()

    def encode(self, messages: Sequence[Message], *, limit: int | None) -> list[JsonObject]:
        """The encoded form of a conversation without its system message. `limit` cuts tool returns."""
        if not messages:
            return []
        conversation = messages[-1].conversation_id
        prefix = self._cached_prefix(conversation, messages, limit)
        encoded = list(prefix.encoded)
        start = len(prefix.messages)
        stable = next((i for i in range(len(messages) - 1, start, -1) if begins_a_turn(messages, i)), start)
        if stable > start:
            self._encode_onto(encoded, messages[start:stable], limit)
            chars = prefix.chars + sum(map(_chars, encoded[len(prefix.encoded) :]))
            self._store(conversation, _Prefix(messages[:stable], limit, list(encoded), chars))
        self._encode_onto(encoded, messages[stable:], limit)
        return encoded

    def _encode_onto(self, encoded: list[JsonObject], messages: Sequence[Message], limit: int | None) -> None:
        for turn in turns(messages):
            self._append(encoded, turn, limit)

    def _cached_prefix(self, conversation: str, messages: Sequence[Message], limit: int | None) -> _Prefix:
        """The cached prefix, if the conversation still begins with it."""
        cached = self._prefixes.get(conversation)
        if cached is None or cached.limit != limit or len(cached.messages) > len(messages):
            return _EMPTY
        if cached.messages == messages[: len(cached.messages)]:  # fast, because tuples look for the same objects first
            return cached
        return cached if all(map(_same, cached.messages, messages)) else _EMPTY

    def _store(self, conversation: str, cached: _Prefix) -> None:
        old = self._prefixes.pop(conversation, _EMPTY)
        self._prefixes[conversation] = cached
        self._chars += cached.chars - old.chars
        while self._chars > self._max_chars:
            self._chars -= self._prefixes.popitem(last=False)[1].chars


def split_system(messages: Sequence[Message]) -> tuple[list[str], Sequence[Message]]:
    """The system texts at the start, and the conversation after them."""
    texts: list[str] = []
    for message in messages:
        if not isinstance(message.body, SystemBody):
            break
        texts.append(message.body.text)
    return [text for text in texts if text.strip()], messages[len(texts) :]


def _same(a: Message, b: Message) -> bool:
    return a is b or (a.id == b.id and (a.body is b.body or a.body == b.body))


def _chars(value: Any) -> int:
    """The approximate size of a value in characters."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + _chars(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return sum(map(_chars, value))
    return 8
