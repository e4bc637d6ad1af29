"""An Anthropic Messages stream, event by event, into deltas and a whole reply.

The stream is a list of blocks (text, thinking, redacted thinking, tool use), each with a start, deltas and a stop,
inside one message whose last word is `message_stop`. Errors may come mid-stream with HTTP 200.
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
from holdfast.providers.anthropic_request import ORIGIN
from holdfast.providers.failures import from_event, read_event, unfinished
from holdfast.providers.gathering import Gathered, GatheredCall
from holdfast.providers.sse import Event

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
    """Implements `calling.Decoder` for one reply."""

    def __init__(self, vendor: str) -> None:
        self.finished = False
        self._vendor = vendor
        self._gathered = Gathered()
        self._call_of_block: dict[int, GatheredCall] = {}
        self._finish: FinishReason = "stop"
        self._usage: dict[str, Any] = {}

    def feed(self, event: Event) -> Sequence[Delta]:
        said = read_event(self._vendor, event.data)
        match said.get("type"):
            case "content_block_delta":
                return self._delta(said["index"], said["delta"])
            case "content_block_start":
                return self._start(said["index"], said["content_block"])
            case "message_start":
                self._count(said["message"].get("usage"))
            case "message_delta":
                self._finish = _FINISH.get(said["delta"].get("stop_reason") or "", "stop")
                self._count(said.get("usage"))
            case "message_stop":
                self.finished = True
                return self._gathered.close_calls()
            case "error":
                raise from_event(self._vendor, said.get("error"))
            case _:  # ping, content_block_stop, and whatever the vendor adds next
                pass
        return ()

    def reply(self) -> Reply:
        if not self.finished:
            raise unfinished(self._vendor)
        return Reply(self._gathered.parts(), self._gathered.tool_calls(), self._finish, usage_of(self._usage))

    def _start(self, index: int, block: dict[str, Any]) -> Sequence[Delta]:
        match block["type"]:
            case "tool_use":
                call = self._call_of_block[index] = GatheredCall(block["id"], block["name"])
                begun: Delta = self._gathered.begin(call)
                arguments = block.get("input")  # always empty in a stream, says the vendor; some proxies fill it
                return (begun, self._arguments(call, orjson.dumps(arguments).decode())) if arguments else (begun,)
            case "redacted_thinking":
                return (self._gathered.add(HiddenReasoningDelta(block["data"], ORIGIN)),)
            case "thinking" | "text":
                self._gathered.new_part()
                if text := block.get("text"):
                    return (self._gathered.add(TextDelta(text)),)
            case _:
                pass
        return ()

    def _delta(self, index: int, delta: dict[str, Any]) -> Sequence[Delta]:
        match delta["type"]:
            case "text_delta":
                return (self._gathered.add(TextDelta(delta["text"])),)
            case "thinking_delta":
                return (self._gathered.add(ReasoningDelta(delta["thinking"])),)
            case "signature_delta":
                return (self._gathered.add(ReasoningDelta("", delta["signature"], ORIGIN)),)
            case "input_json_delta" if delta["partial_json"] and index in self._call_of_block:
                return (self._arguments(self._call_of_block[index], delta["partial_json"]),)
            case _:
                return ()

    def _arguments(self, call: GatheredCall, text: str) -> Delta:
        return self._gathered.add(CallDelta(call.id, arguments=text))

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Counts are cumulative, and the last word on each wins."""
        self._usage.update({name: count for name, count in (usage or {}).items() if count is not None})


def usage_of(said: dict[str, Any]) -> Usage:
    """The wire counts cached tokens apart from the input; the prompt is all three."""
    read, written = said.get("cache_read_input_tokens"), said.get("cache_creation_input_tokens")
    return Usage(
        prompt_tokens=said.get("input_tokens", 0) + (read or 0) + (written or 0),
        completion_tokens=said.get("output_tokens", 0),
        cached_input_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=(said.get("output_tokens_details") or {}).get("thinking_tokens"),
    )
