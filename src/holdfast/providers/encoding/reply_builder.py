"""Collects the deltas of a streamed reply into its parts and tool calls, for the decoders of every API.

Keeps the vendor's order: text after reasoning after text stays three parts. Pieces are kept in lists and joined once,
so a long reply takes linear time.
"""

from __future__ import annotations

from typing import TypeVar

from holdfast.core.conversation.messages import HiddenReasoning, Part, Reasoning, Text, ToolCall
from holdfast.core.model import CallDelta, Delta, HiddenReasoningDelta, ReasoningDelta, TextDelta

NO_ARGUMENTS = "{}"
D = TypeVar("D", TextDelta, ReasoningDelta, HiddenReasoningDelta, CallDelta)


class CallBuilder:
    """A tool call being received. `buffers_before` says where in the reply it began."""

    __slots__ = ("arguments", "buffers_before", "id", "name", "origin", "signature")

    def __init__(self, id: str, name: str, signature: str | None = None, origin: str | None = None) -> None:
        self.id = id
        self.name = name
        self.signature = signature
        self.origin = origin
        self.arguments: list[str] = []
        self.buffers_before = 0


class _PartBuffer:
    """Consecutive deltas of one kind, which make one part."""

    __slots__ = ("id", "kind", "origin", "signature", "texts")

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.texts: list[str] = []
        self.signature: str | None = None
        self.origin: str | None = None
        self.id: str | None = None

    def set_signature(self, signature: str | None, origin: str | None, id: str | None = None) -> None:
        self.signature, self.origin, self.id = signature, origin, id


class ReplyBuilder:
    """The parts and calls of a reply received so far."""

    def __init__(self) -> None:
        self.calls: dict[str, CallBuilder] = {}
        self._buffers: list[_PartBuffer] = []

    def begin(self, call: CallBuilder) -> CallDelta:
        """Start a tool call; returns its first delta."""
        self.calls[call.id] = call
        call.buffers_before = len(self._buffers)
        return CallDelta(call.id, call.name)

    def add(self, delta: D) -> D:
        """Add a delta and return it. Runs once per token, so the most frequent kind is tested first."""
        if isinstance(delta, TextDelta):
            buffer = self._current(TextDelta)
            buffer.texts.append(delta.text)
            if delta.signature:
                buffer.set_signature(delta.signature, delta.origin)
        elif isinstance(delta, ReasoningDelta):
            buffer = self._current(ReasoningDelta)
            buffer.texts.append(delta.text)
            if delta.signature:
                buffer.set_signature(delta.signature, delta.origin, delta.id)
        elif isinstance(delta, CallDelta):
            self.calls[delta.call_id].arguments.append(delta.arguments)
        else:
            buffer = self._open(HiddenReasoningDelta)
            buffer.texts.append(delta.data)
            buffer.set_signature(None, delta.origin, delta.id)
        return delta

    @property
    def last_is_text(self) -> bool:
        """Whether the last delta was text."""
        return bool(self._buffers) and self._buffers[-1].kind is TextDelta

    def new_part(self) -> None:
        """Start a new part: the vendor began a new block, so the next delta must not join the last one."""
        if self._buffers and self._buffers[-1].texts:
            self._buffers.append(_PartBuffer(object))

    def close_calls(self) -> list[Delta]:
        """Deltas that give the empty object to calls that arrived without arguments."""
        without_arguments = [call for call in self.calls.values() if not call.arguments]
        return [self.add(CallDelta(call.id, arguments=NO_ARGUMENTS)) for call in without_arguments]

    def parts(self) -> tuple[Part, ...]:
        return tuple(part for buffer in self._buffers if (part := _part(buffer)) is not None)

    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(self._tool_call(call) for call in self.calls.values())

    def _tool_call(self, call: CallBuilder) -> ToolCall:
        place = sum(_part(buffer) is not None for buffer in self._buffers[: call.buffers_before])
        comes_last = all(_part(buffer) is None for buffer in self._buffers[call.buffers_before :])
        return ToolCall(
            call.id,
            call.name,
            "".join(call.arguments),
            call.signature,
            call.origin,
            None if comes_last else place,
        )

    def _current(self, kind: type) -> _PartBuffer:
        if self._buffers and self._buffers[-1].kind is kind:
            return self._buffers[-1]
        return self._open(kind)

    def _open(self, kind: type) -> _PartBuffer:
        buffer = _PartBuffer(kind)
        self._buffers.append(buffer)
        return buffer


def _part(buffer: _PartBuffer) -> Part | None:
    text = "".join(buffer.texts)
    if buffer.kind is TextDelta and text:
        return Text(text, buffer.signature, buffer.origin)
    if buffer.kind is ReasoningDelta and (text or buffer.signature):
        return Reasoning(text, buffer.signature, buffer.origin, buffer.id)
    if buffer.kind is HiddenReasoningDelta:
        return HiddenReasoning(text, buffer.origin, buffer.id)
    return None
