"""Decodes a stream of the Anthropic Messages API, event by event, into deltas and a whole reply.

The stream is a list of blocks (text, thinking, redacted thinking, tool use), each with a start, deltas and a stop,
inside one message that ends with `message_stop`. Errors may arrive in the middle of a stream with HTTP 200.
https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

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
from holdfast.providers.anthropic.messages_request import ORIGIN
from holdfast.providers.encoding.reply_builder import CallBuilder, ReplyBuilder
from holdfast.providers.failures import from_event, read_event, unfinished
from holdfast.providers.http.sse import Event

_FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class AnthropicDecoder:
    """Implements `http.retries.Decoder` for one reply."""

    def __init__(self, vendor: str) -> None:
        self.finished = False
        self._vendor = vendor
        self._builder = ReplyBuilder()
        self._call_of_block: dict[int, CallBuilder] = {}
        self._finish: FinishReason = "stop"
        self._usage: dict[str, Any] = {}

    def feed(self, event: Event) -> Sequence[Delta]:
        payload = read_event(self._vendor, event.data)
        match payload.get("type"):
            case "content_block_delta":
                return self._delta(payload["index"], payload["delta"])
            case "content_block_start":
                return self._start(payload["index"], payload["content_block"])
            case "message_start":
                self._count(payload["message"].get("usage"))
            case "message_delta":
                self._finish = _FINISH.get(payload["delta"].get("stop_reason") or "", "stop")
                self._count(payload.get("usage"))
            case "message_stop":
                self.finished = True
                return self._builder.close_calls()
            case "error":
                raise from_event(self._vendor, payload.get("error"))
            case _:  # ping, content_block_stop, and event types that are unknown here
                pass
        return ()

    def reply(self) -> Reply:
        if not self.finished:
            raise unfinished(self._vendor)
        return Reply(self._builder.parts(), self._builder.tool_calls(), self._finish, usage_of(self._usage))

    def _start(self, index: int, block: dict[str, Any]) -> Sequence[Delta]:
        match block["type"]:
            case "tool_use":
                call = self._call_of_block[index] = CallBuilder(block["id"], block["name"])
                begun: Delta = self._builder.begin(call)
                arguments = block.get("input")  # always empty in a stream, by the vendor's docs; some proxies fill it
                return (begun, self._arguments(call, orjson.dumps(arguments).decode())) if arguments else (begun,)
            case "redacted_thinking":
                return (self._builder.add(HiddenReasoningDelta(block["data"], ORIGIN)),)
            case "thinking" | "text":
                self._builder.new_part()
                if text := block.get("text"):
                    return (self._builder.add(TextDelta(text)),)
            case _:
                pass
        return ()

    def _delta(self, index: int, delta: dict[str, Any]) -> Sequence[Delta]:
        match delta["type"]:
            case "text_delta":
                return (self._builder.add(TextDelta(delta["text"])),)
            case "thinking_delta":
                return (self._builder.add(ReasoningDelta(delta["thinking"])),)
            case "signature_delta":
                return (self._builder.add(ReasoningDelta("", delta["signature"], ORIGIN)),)
            case "input_json_delta" if delta["partial_json"] and index in self._call_of_block:
                return (self._arguments(self._call_of_block[index], delta["partial_json"]),)
            case _:
                return ()

    def _arguments(self, call: CallBuilder, text: str) -> Delta:
        return self._builder.add(CallDelta(call.id, arguments=text))

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Counts are cumulative, so the latest value of each wins."""
        self._usage.update({name: count for name, count in (usage or {}).items() if count is not None})


def usage_of(usage: dict[str, Any]) -> Usage:
    """The API counts cached tokens apart from the input; the prompt is the sum of all three."""
    read, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    return Usage(
        prompt_tokens=usage.get("input_tokens", 0) + (read or 0) + (written or 0),
        completion_tokens=usage.get("output_tokens", 0),
        cached_input_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=(usage.get("output_tokens_details") or {}).get("thinking_tokens"),
    )
