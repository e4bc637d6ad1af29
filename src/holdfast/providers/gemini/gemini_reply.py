"""Decodes a stream of the Gemini API, chunk by chunk, into deltas and a whole reply.

A chunk holds parts: text, thoughts, whole calls, each perhaps with a signature, which may also come alone on an empty
part. The end is a finish reason; older models repeat it in every chunk, so the reply ends when the stream ends and a
reason has come. The API has no switch for parallel calls: when they are off, all calls but the first are dropped.
https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
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
from holdfast.providers.encoding.reply_builder import CallBuilder, ReplyBuilder
from holdfast.providers.failures import TransientError, from_event, read_event, unfinished
from holdfast.providers.gemini.gemini_request import ORIGIN
from holdfast.providers.http.sse import Event

_FINISH: dict[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
}

# The model wrote a call that cannot be parsed. A retry often succeeds.
_BROKEN_CALL = frozenset(
    {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"}
)


def new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


class GeminiDecoder:
    """Implements `http.retries.Decoder` for one reply."""

    def __init__(self, vendor: str, *, parallel: bool = True, make_call_id: Callable[[], str] = new_call_id) -> None:
        self.finished = False  # stays False: only the end of the stream ends the reply
        self._vendor = vendor
        self._parallel = parallel
        self._make_call_id = make_call_id
        self._builder = ReplyBuilder()
        self._finish: FinishReason | None = None
        self._usage = Usage()

    def feed(self, event: Event) -> Sequence[Delta]:
        chunk = read_event(self._vendor, event.data)
        if error := chunk.get("error"):
            raise from_event(self._vendor, error)
        if usage := chunk.get("usageMetadata"):
            self._usage = usage_of(usage)
        if candidates := chunk.get("candidates"):
            return self._candidate(candidates[0])
        if (chunk.get("promptFeedback") or {}).get("blockReason"):
            self._finish = "content_filter"
        return ()

    def reply(self) -> Reply:
        if self._finish is None:
            raise unfinished(self._vendor)
        finish = self._finish
        if finish == "stop" and self._builder.calls:
            finish = "tool_calls"
        return Reply(self._builder.parts(), self._builder.tool_calls(), finish, self._usage)

    def _candidate(self, candidate: dict[str, Any]) -> Sequence[Delta]:
        out: list[Delta] = []
        for part in (candidate.get("content") or {}).get("parts") or ():
            out.extend(self._part(part))
        if reason := candidate.get("finishReason"):
            if reason in _BROKEN_CALL:
                reason = candidate.get("finishMessage") or reason
                raise TransientError(
                    "llm_error", f"{self._vendor}: the model wrote a call that cannot be read ({reason})."
                )
            self._finish = _FINISH.get(reason, "stop")
        return out

    def _part(self, part: dict[str, Any]) -> Sequence[Delta]:
        signature = part.get("thoughtSignature")
        if (call := part.get("functionCall")) is not None:
            return self._call(call, signature)
        text = part.get("text") or ""
        if part.get("thought"):
            signed = (signature, ORIGIN) if signature else (None, None)
            return (self._builder.add(ReasoningDelta(text, *signed)),) if text or signature else ()
        if not signature:
            return (self._builder.add(TextDelta(text)),) if text else ()
        if text or self._builder.last_is_text:
            return (self._builder.add(TextDelta(text, signature, ORIGIN)),)
        return (self._builder.add(HiddenReasoningDelta(signature, ORIGIN)),)

    def _call(self, call: dict[str, Any], signature: str | None) -> Sequence[Delta]:
        if self._builder.calls and not self._parallel:
            return ()
        call_id = call.get("id")
        if not call_id or call_id in self._builder.calls:
            call_id = self._make_call_id()
        builder = CallBuilder(call_id, call["name"], signature, ORIGIN if signature else None)
        arguments = call.get("args")
        text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
        return (self._builder.begin(builder), self._builder.add(CallDelta(call_id, arguments=text)))


def usage_of(usage: dict[str, Any]) -> Usage:
    """The API counts thoughts apart from the answer, and tokens read by Google's own tools apart from the prompt."""
    thoughts = usage.get("thoughtsTokenCount")
    return Usage(
        prompt_tokens=(usage.get("promptTokenCount") or 0) + (usage.get("toolUsePromptTokenCount") or 0),
        completion_tokens=(usage.get("candidatesTokenCount") or 0) + (thoughts or 0),
        cached_input_tokens=usage.get("cachedContentTokenCount"),
        reasoning_tokens=thoughts,
    )
