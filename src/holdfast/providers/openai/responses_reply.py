"""Decodes an OpenAI Responses stream, event by event, into deltas and a whole reply.

The stream is a list of items (reasoning, messages, calls), each added, filled by deltas and done, inside one response
that ends with `completed`, `incomplete` or `failed`. Compatible servers leave out some events, so an item that had no
deltas is read from its `done` event, and one that had neither from the final response. Failures arrive as
`response.failed` or as `error`, both with HTTP 200. https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.model import (
    CallDelta,
    Delta,
    FinishReason,
    HiddenReasoningDelta,
    ReasoningDelta,
    Reply,
    TextDelta,
    Usage,
)
from holdfast.providers.encoding.reply_builder import CallBuilder, ReplyBuilder
from holdfast.providers.failures import from_event, read_event, unfinished
from holdfast.providers.http.sse import Event
from holdfast.providers.openai.responses_request import ORIGIN

BETWEEN_SUMMARIES = "\n\n"


class _Item:
    """An output item: its call if it is one, and whether any of it came in deltas."""

    __slots__ = ("call", "done", "had_deltas")

    def __init__(self) -> None:
        self.call: CallBuilder | None = None
        self.had_deltas = False
        self.done = False


class ResponsesDecoder:
    """Implements `http.retries.Decoder` for one reply."""

    def __init__(self, vendor: str) -> None:
        self.finished = False
        self._vendor = vendor
        self._builder = ReplyBuilder()
        self._items: dict[int, _Item] = {}
        self._finish: FinishReason = "stop"
        self._usage = Usage()

    def feed(self, event: Event) -> Sequence[Delta]:
        if event.data == b"[DONE]":
            return ()
        payload = read_event(self._vendor, event.data)
        match payload.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                return self._text(payload)
            case "response.function_call_arguments.delta":
                return self._arguments(payload["output_index"], payload["delta"])
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return self._thought(payload["output_index"], payload["delta"])
            case "response.reasoning_summary_part.added" if payload.get("summary_index"):
                return self._thought(payload["output_index"], BETWEEN_SUMMARIES)
            case "response.output_item.added":
                return self._added(payload["output_index"], payload["item"])
            case "response.output_item.done":
                return self._done(payload["output_index"], payload["item"])
            case "response.completed" | "response.incomplete":
                return self._end(payload["response"])
            case "response.failed" | "response.cancelled":
                error = payload["response"].get("error")
                raise from_event(self._vendor, error or {"message": f"The model ended with {payload['type']}."})
            case "error":
                raise from_event(self._vendor, payload.get("error") or payload)
            case _:  # created, in_progress, content_part.added, …_text.done, and event types that are unknown here
                return ()

    def reply(self) -> Reply:
        if not self.finished:
            raise unfinished(self._vendor)
        finish = self._finish
        if finish == "stop" and self._builder.calls:
            finish = "tool_calls"
        return Reply(self._builder.parts(), self._builder.tool_calls(), finish, self._usage)

    def _item(self, index: int) -> _Item:
        return self._items.setdefault(index, _Item())

    def _text(self, payload: dict[str, Any]) -> Sequence[Delta]:
        self._item(payload["output_index"]).had_deltas = True
        return (self._builder.add(TextDelta(payload["delta"])),)

    def _thought(self, index: int, text: str) -> Sequence[Delta]:
        self._item(index).had_deltas = True
        return (self._builder.add(ReasoningDelta(text)),)

    def _arguments(self, index: int, text: str) -> Sequence[Delta]:
        item = self._item(index)
        if item.call is None or not text:
            return ()
        item.had_deltas = True
        return (self._builder.add(CallDelta(item.call.id, arguments=text)),)

    def _added(self, index: int, item: dict[str, Any]) -> Sequence[Delta]:
        if item["type"] in ("message", "reasoning"):
            self._builder.new_part()
        elif item["type"] == "function_call" and self._item(index).call is None:
            call = self._item(index).call = CallBuilder(item["call_id"], item["name"])
            return (self._builder.begin(call),)
        return ()

    def _done(self, index: int, item: dict[str, Any]) -> Sequence[Delta]:
        known = self._item(index)
        if known.done:
            return ()
        known.done = True
        match item["type"]:
            case "reasoning":
                return self._reasoned(known, item)
            case "message" if not known.had_deltas:
                texts = [part.get("text") or part.get("refusal") for part in item.get("content") or ()]
                return [self._builder.add(TextDelta(text)) for text in texts if text]
            case "function_call":
                begun = self._added(index, item)
                return [*begun, *(() if known.had_deltas else self._arguments(index, item.get("arguments") or ""))]
            case _:
                return ()

    def _reasoned(self, known: _Item, item: dict[str, Any]) -> Sequence[Delta]:
        """The signature of the reasoning shown, or the encrypted reasoning if none was shown."""
        out: list[Delta] = []
        if not known.had_deltas:
            shown = [*(item.get("summary") or ()), *(item.get("content") or ())]
            if text := BETWEEN_SUMMARIES.join(part["text"] for part in shown):
                out.append(self._builder.add(ReasoningDelta(text)))
                known.had_deltas = True
        if encrypted := item.get("encrypted_content"):
            signature: ReasoningDelta | HiddenReasoningDelta
            if known.had_deltas:
                signature = self._builder.add(ReasoningDelta("", encrypted, ORIGIN, item.get("id")))
            else:
                signature = self._builder.add(HiddenReasoningDelta(encrypted, ORIGIN, item.get("id")))
            out.append(signature)
        return out

    def _end(self, response: dict[str, Any]) -> Sequence[Delta]:
        self.finished = True
        out: list[Delta] = []
        for index, item in enumerate(response.get("output") or ()):
            out.extend(self._done(index, item))
        if usage := response.get("usage"):
            self._usage = usage_of(usage)
        if response.get("status") == "incomplete":
            reason = (response.get("incomplete_details") or {}).get("reason")
            self._finish = "content_filter" if reason == "content_filter" else "length"
        out.extend(self._builder.close_calls())
        return out


def usage_of(usage: dict[str, Any]) -> Usage:
    return Usage(
        prompt_tokens=usage.get("input_tokens") or 0,
        completion_tokens=usage.get("output_tokens") or 0,
        cached_input_tokens=(usage.get("input_tokens_details") or {}).get("cached_tokens"),
        reasoning_tokens=(usage.get("output_tokens_details") or {}).get("reasoning_tokens"),
    )
