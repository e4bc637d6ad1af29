"""A Gemini stream, chunk by chunk, into deltas and a whole reply.

A chunk holds parts: text, thoughts, whole calls, each perhaps with a signature, which may also come alone on an empty
part. The end is a finish reason; older models repeat it in every chunk, so the reply is over when the bytes are and a
reason has come. There is no switch for parallel calls: without them, all but the first call are cut off.
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
from holdfast.providers.failures import Fleeting, from_event, read_event, unfinished
from holdfast.providers.gathering import Gathered, GatheredCall
from holdfast.providers.gemini_request import ORIGIN
from holdfast.providers.sse import Event

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

# The model wrote a call that cannot be read. It often succeeds at the next try.
_BROKEN_CALL = frozenset(
    {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"}
)


def new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


class GeminiDecoder:
    """Implements `calling.Decoder` for one reply."""

    def __init__(self, vendor: str, *, parallel: bool = True, make_call_id: Callable[[], str] = new_call_id) -> None:
        self.finished = False  # only the end of the bytes ends the reply
        self._vendor = vendor
        self._parallel = parallel
        self._make_call_id = make_call_id
        self._gathered = Gathered()
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
        if finish == "stop" and self._gathered.calls:
            finish = "tool_calls"
        return Reply(self._gathered.parts(), self._gathered.tool_calls(), finish, self._usage)

    def _candidate(self, candidate: dict[str, Any]) -> Sequence[Delta]:
        out: list[Delta] = []
        for part in (candidate.get("content") or {}).get("parts") or ():
            out.extend(self._part(part))
        if reason := candidate.get("finishReason"):
            if reason in _BROKEN_CALL:
                said = candidate.get("finishMessage") or reason
                raise Fleeting("llm_error", f"{self._vendor}: the model wrote a call that cannot be read ({said}).")
            self._finish = _FINISH.get(reason, "stop")
        return out

    def _part(self, part: dict[str, Any]) -> Sequence[Delta]:
        signature = part.get("thoughtSignature")
        if (call := part.get("functionCall")) is not None:
            return self._call(call, signature)
        text = part.get("text") or ""
        if part.get("thought"):
            seal = (signature, ORIGIN) if signature else (None, None)
            return (self._gathered.add(ReasoningDelta(text, *seal)),) if text or signature else ()
        if not signature:
            return (self._gathered.add(TextDelta(text)),) if text else ()
        if text or self._gathered.speaking:
            return (self._gathered.add(TextDelta(text, signature, ORIGIN)),)
        return (self._gathered.add(HiddenReasoningDelta(signature, ORIGIN)),)

    def _call(self, said: dict[str, Any], signature: str | None) -> Sequence[Delta]:
        if self._gathered.calls and not self._parallel:
            return ()
        call_id = said.get("id")
        if not call_id or call_id in self._gathered.calls:
            call_id = self._make_call_id()
        call = GatheredCall(call_id, said["name"], signature, ORIGIN if signature else None)
        arguments = said.get("args")
        text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
        return (self._gathered.begin(call), self._gathered.add(CallDelta(call_id, arguments=text)))


def usage_of(said: dict[str, Any]) -> Usage:
    """Thoughts are counted apart from the answer; what tools of the vendor's own read, apart from the prompt."""
    thoughts = said.get("thoughtsTokenCount")
    return Usage(
        prompt_tokens=(said.get("promptTokenCount") or 0) + (said.get("toolUsePromptTokenCount") or 0),
        completion_tokens=(said.get("candidatesTokenCount") or 0) + (thoughts or 0),
        cached_input_tokens=said.get("cachedContentTokenCount"),
        reasoning_tokens=thoughts,
    )
