"""Deltas gathered into a whole reply, for the decoders of every wire.

Keeps the vendor's order: text after reasoning after text stays three parts. Pieces are kept in lists and joined
once, so a long reply costs what its pieces cost.
"""

from __future__ import annotations

from typing import TypeVar

from holdfast.core.messages import HiddenReasoning, Part, Reasoning, Text, ToolCall
from holdfast.core.model import CallDelta, Delta, HiddenReasoningDelta, ReasoningDelta, TextDelta

NO_ARGUMENTS = "{}"
D = TypeVar("D", TextDelta, ReasoningDelta, HiddenReasoningDelta, CallDelta)


class GatheredCall:
    """A call in the making. `stretches_before` says where in the reply it began."""

    __slots__ = ("arguments", "id", "name", "origin", "signature", "stretches_before")

    def __init__(self, id: str, name: str, signature: str | None = None, origin: str | None = None) -> None:
        self.id = id
        self.name = name
        self.signature = signature
        self.origin = origin
        self.arguments: list[str] = []
        self.stretches_before = 0


class _Stretch:
    """Deltas of one kind in a row, which make one part."""

    __slots__ = ("id", "kind", "origin", "signature", "texts")

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.texts: list[str] = []
        self.signature: str | None = None
        self.origin: str | None = None
        self.id: str | None = None

    def seal(self, signature: str | None, origin: str | None, id: str | None = None) -> None:
        self.signature, self.origin, self.id = signature, origin, id


class Gathered:
    """What has come of a reply so far."""

    def __init__(self) -> None:
        self.calls: dict[str, GatheredCall] = {}
        self._stretches: list[_Stretch] = []

    def begin(self, call: GatheredCall) -> CallDelta:
        """The first piece of a call."""
        self.calls[call.id] = call
        call.stretches_before = len(self._stretches)
        return CallDelta(call.id, call.name)

    def add(self, delta: D) -> D:
        """Takes a delta in and gives it back, to be passed on. Once per token, so the likeliest kind comes first."""
        if isinstance(delta, TextDelta):
            stretch = self._current(TextDelta)
            stretch.texts.append(delta.text)
            if delta.signature:
                stretch.seal(delta.signature, delta.origin)
        elif isinstance(delta, ReasoningDelta):
            stretch = self._current(ReasoningDelta)
            stretch.texts.append(delta.text)
            if delta.signature:
                stretch.seal(delta.signature, delta.origin, delta.id)
        elif isinstance(delta, CallDelta):
            self.calls[delta.call_id].arguments.append(delta.arguments)
        else:
            stretch = self._open(HiddenReasoningDelta)
            stretch.texts.append(delta.data)
            stretch.seal(None, delta.origin, delta.id)
        return delta

    @property
    def speaking(self) -> bool:
        """Whether the last piece was of text."""
        return bool(self._stretches) and self._stretches[-1].kind is TextDelta

    def new_part(self) -> None:
        """The vendor began a new block: what comes next is a part of its own, even of the same kind."""
        if self._stretches and self._stretches[-1].texts:
            self._stretches.append(_Stretch(object))

    def close_calls(self) -> list[Delta]:
        """Calls that came without arguments have the empty object, and the stream says so too."""
        bare = [call for call in self.calls.values() if not call.arguments]
        return [self.add(CallDelta(call.id, arguments=NO_ARGUMENTS)) for call in bare]

    def parts(self) -> tuple[Part, ...]:
        return tuple(part for stretch in self._stretches if (part := _part(stretch)) is not None)

    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(self._tool_call(call) for call in self.calls.values())

    def _tool_call(self, call: GatheredCall) -> ToolCall:
        place = sum(_part(stretch) is not None for stretch in self._stretches[: call.stretches_before])
        comes_last = all(_part(stretch) is None for stretch in self._stretches[call.stretches_before :])
        return ToolCall(
            call.id,
            call.name,
            "".join(call.arguments),
            call.signature,
            call.origin,
            None if comes_last else place,
        )

    def _current(self, kind: type) -> _Stretch:
        if self._stretches and self._stretches[-1].kind is kind:
            return self._stretches[-1]
        return self._open(kind)

    def _open(self, kind: type) -> _Stretch:
        stretch = _Stretch(kind)
        self._stretches.append(stretch)
        return stretch


def _part(stretch: _Stretch) -> Part | None:
    text = "".join(stretch.texts)
    if stretch.kind is TextDelta and text:
        return Text(text, stretch.signature, stretch.origin)
    if stretch.kind is ReasoningDelta and (text or stretch.signature):
        return Reasoning(text, stretch.signature, stretch.origin, stretch.id)
    if stretch.kind is HiddenReasoningDelta:
        return HiddenReasoning(text, stretch.origin, stretch.id)
    return None
