"""Turns the deltas of a model reply into the events that clients stream, and collects the parts seen so far.

`engine.run.model_call` feeds every `Delta` of a model call to one `Unfolding`. It assigns each delta to a part of the
message, so that streamed otids equal the listed ones. If the run is cancelled, the parts seen so far are stored. It is
mutable and lives only for one model call.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.conversation.messages import HiddenReasoning, Part, Reasoning, Text
from holdfast.core.conversation.wire_messages import WireObject, otid_of
from holdfast.core.model import CallDelta, Delta, HiddenReasoningDelta, ReasoningDelta, ReplyDone, TextDelta


class Unfolding:
    """Calls of `gated` tools are streamed as approval requests, calls of `held` tools only when they are complete."""

    def __init__(
        self,
        *,
        message_id: str,
        request_id: str,
        step_id: str,
        run_id: str,
        date: str,
        gated: frozenset[str],
        held: frozenset[str] = frozenset(),
        parallel: bool,
    ) -> None:
        self._message_id = message_id
        self._request_id = request_id
        self._gated = gated
        self._held = held
        self._parallel = parallel
        self._base: WireObject = {"date": date, "name": None, "sender_id": None, "step_id": step_id, "is_err": None}
        self._tail: WireObject = {"seq_id": None, "run_id": run_id}
        self._parts: list[tuple[type[Part], list[str]]] = []
        self._signed: dict[int, ReasoningDelta | HiddenReasoningDelta] = {}
        self._names: dict[str, str] = {}
        self._otids: dict[int, str] = {}

    def feed(self, delta: Delta) -> WireObject | None:
        """The event for this delta, or None if clients get none."""
        match delta:
            case TextDelta(text=text):
                index = self._extend(Text, text)
                return self._record("assistant_message", index, {"content": text}) if text else None
            case ReasoningDelta(text=text, signature=signature):
                index = self._extend(Reasoning, text)
                if signature:
                    self._signed[index] = delta
                fields = {"source": "reasoner_model", "reasoning": text, "signature": signature}
                return self._record("reasoning_message", index, fields) if text or signature else None
            case HiddenReasoningDelta(data=data):
                self._parts.append((HiddenReasoning, [data]))
                self._signed[len(self._parts) - 1] = delta
                fields = {"state": "redacted", "hidden_reasoning": data}
                return self._record("hidden_reasoning_message", len(self._parts) - 1, fields)
            case CallDelta():
                return self._call(delta)
            case ReplyDone():
                return None

    def seen(self) -> tuple[Part, ...]:
        """The parts so far, as a message can store them. Incomplete calls are left out: they never ran."""
        return tuple(part for index in range(len(self._parts)) if (part := self._part(index)) is not None)

    def _part(self, index: int) -> Part | None:
        kind, pieces = self._parts[index]
        text = "".join(pieces)
        match self._signed.get(index):
            case ReasoningDelta(signature=signature, origin=origin, id=id):
                return Reasoning(text, signature, origin, id)
            case HiddenReasoningDelta(origin=origin, id=id):
                return HiddenReasoning(text, origin, id)
            case None:
                return Reasoning(text) if kind is Reasoning else Text(text) if text else None

    def _extend(self, kind: type[Part], text: str) -> int:
        """Append to the current part, or begin a new one if the kind changes; returns its index."""
        if not self._parts or self._parts[-1][0] is not kind:
            self._parts.append((kind, []))
        self._parts[-1][1].append(text)
        return len(self._parts) - 1

    def _call(self, delta: CallDelta) -> WireObject | None:
        if not self._parallel and self._names and delta.call_id not in self._names:
            return None  # without parallel calls only the first call counts, so only that one is streamed
        name = self._names.setdefault(delta.call_id, delta.name or "")
        if name in self._held:
            return None  # the complete arguments decide whether this becomes an approval request
        if name in self._gated:
            piece: dict[str, Any] = {
                "name": delta.name,
                "arguments": delta.arguments or None,
                "tool_call_id": delta.call_id,
            }
            return self._call_record("approval_request_message", self._request_id, self._request_id, piece)
        piece = {"tool_call_id": delta.call_id}
        if delta.name:
            piece = {"name": delta.name, **piece}
        if delta.arguments:
            piece["arguments"] = delta.arguments
        otid = self._otid(len(self._parts))
        return self._call_record("tool_call_message", self._message_id, otid, piece)

    def _call_record(self, kind: str, message_id: str, otid: str, piece: dict[str, Any]) -> WireObject:
        head: WireObject = {"id": message_id, **self._base, "message_type": kind, "otid": otid}
        return {**head, **self._tail, "tool_call": piece, "tool_calls": piece}

    def _record(self, kind: str, index: int, fields: WireObject) -> WireObject:
        head: WireObject = {"id": self._message_id, **self._base, "message_type": kind, "otid": self._otid(index)}
        return {**head, **self._tail, **fields}

    def _otid(self, index: int) -> str:
        if index not in self._otids:
            self._otids[index] = otid_of(self._message_id, index)
        return self._otids[index]
