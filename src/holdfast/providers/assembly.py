"""The conversation as a list for the wire, kept between requests so that a step costs only what is new in it.

A conversation is sent again in full on every step. What was sent last time is remembered for each conversation, up to
the last place where turns can be cut apart; if the messages up to there are still the same, only the rest is encoded.
So the 400th turn costs about what the 10th does. A change further up (a compaction, an edited message) makes the list
anew. The system message is left out, since it is rewritten whenever memory changes.

What is remembered is shared between requests: `append` may add to the list it is given or put another value in a place
of it, but never changes a value that is already there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, NamedTuple

from holdfast.core.messages import Message, SystemBody
from holdfast.providers.encoding import Wire
from holdfast.providers.turns import Turn, begins_a_turn, turns

MAX_KEPT_CHARS = 64 * 1024 * 1024

Append = Callable[[list[Wire], Turn, int | None], None]


class _Kept(NamedTuple):
    """The stable front of a conversation and its wire form."""

    messages: Sequence[Message]
    limit: int | None
    wire: list[Wire]
    chars: int


_NOTHING = _Kept((), None, [], 0)


class Assembly:
    """Wire forms of the conversations most recently sent, within a bound."""

    def __init__(self, append: Append, *, max_chars: int = MAX_KEPT_CHARS) -> None:
        self._append = append
        self._max_chars = max_chars
        self._chars = 0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def of(self, messages: Sequence[Message], *, limit: int | None) -> list[Wire]:
        """The wire form of a conversation without its system message. `limit` cuts tool returns."""
        if not messages:
            return []
        conversation = messages[-1].conversation_id
        front = self._front(conversation, messages, limit)
        wire = list(front.wire)
        start = len(front.messages)
        stable = next((i for i in range(len(messages) - 1, start, -1) if begins_a_turn(messages, i)), start)
        if stable > start:
            self._add(wire, messages[start:stable], limit)
            chars = front.chars + sum(map(_chars, wire[len(front.wire) :]))
            self._keep(conversation, _Kept(messages[:stable], limit, list(wire), chars))
        self._add(wire, messages[stable:], limit)
        return wire

    def _add(self, wire: list[Wire], messages: Sequence[Message], limit: int | None) -> None:
        for turn in turns(messages):
            self._append(wire, turn, limit)

    def _front(self, conversation: str, messages: Sequence[Message], limit: int | None) -> _Kept:
        """What is remembered, if this conversation still begins with it."""
        kept = self._kept.get(conversation)
        if kept is None or kept.limit != limit or len(kept.messages) > len(messages):
            return _NOTHING
        if all(map(is_, kept.messages, messages)):
            return kept
        return kept if all(map(_same, kept.messages, messages)) else _NOTHING

    def _keep(self, conversation: str, kept: _Kept) -> None:
        old = self._kept.pop(conversation, _NOTHING)
        self._kept[conversation] = kept
        self._chars += kept.chars - old.chars
        while self._chars > self._max_chars:
            self._chars -= self._kept.popitem(last=False)[1].chars


def split_system(messages: Sequence[Message]) -> tuple[list[str], Sequence[Message]]:
    """The system texts at the front, and the conversation after them."""
    texts: list[str] = []
    for message in messages:
        if not isinstance(message.body, SystemBody):
            break
        texts.append(message.body.text)
    return [text for text in texts if text.strip()], messages[len(texts) :]


def _same(a: Message, b: Message) -> bool:
    return a is b or (a.id == b.id and (a.body is b.body or a.body == b.body))


def _chars(value: Any) -> int:
    """About how much room a value takes."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + _chars(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return sum(map(_chars, value))
    return 8
