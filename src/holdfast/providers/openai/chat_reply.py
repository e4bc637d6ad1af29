"""Decodes a Chat Completions stream, chunk by chunk, into deltas and a whole reply.

Compatible servers deviate in known ways, all handled here: reasoning under `reasoning_content` or `reasoning`, or as
OpenRouter's `reasoning_details` with signatures; content as a list of chunks (Mistral); calls without ids or with every
index 0; arguments as an object; usage in the last chunk or in every chunk; a finish reason but no `[DONE]`; an `error`
object instead of a chunk.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from holdfast.core.errors import ModelError, ModelErrorKind
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
from holdfast.providers.openai.chat_request import DETAILS

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "model_length": "length",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}

# Finish reasons of a reply that the server aborted (DeepSeek, vLLM, Mistral and OpenRouter).
_ABORTED: dict[str, ModelErrorKind] = {
    "insufficient_system_resource": "llm_overloaded",
    "abort": "llm_error",
    "error": "llm_error",
}


def new_call_id(index: int) -> str:
    """An id for a call whose server gave none; unique, because results are matched by it."""
    return f"call_{index}_{uuid.uuid4().hex[:16]}"


class ChatDecoder:
    """Implements `http.retries.Decoder` for one reply."""

    def __init__(self, vendor: str, make_call_id: Callable[[int], str] = new_call_id) -> None:
        self.finished = False
        self._vendor = vendor
        self._make_call_id = make_call_id
        self._builder = ReplyBuilder()
        self._by_index: dict[int, CallBuilder] = {}
        self._finish: FinishReason | None = None
        self._usage = Usage()

    def feed(self, event: Event) -> Sequence[Delta]:
        if event.data == b"[DONE]":
            self.finished = True
            return self._builder.close_calls()
        chunk = read_event(self._vendor, event.data)
        if chunk.get("error") or event.name == b"error":
            raise from_event(self._vendor, chunk.get("error") or chunk)
        if usage := chunk.get("usage"):
            self._usage = usage_of(usage)
        choices = chunk.get("choices")
        return self._choice(choices[0]) if choices else ()

    def reply(self) -> Reply:
        if not self.finished and self._finish is None:
            raise unfinished(self._vendor)
        finish = self._finish or "stop"
        if finish == "stop" and self._builder.calls:  # a forced tool finishes with `stop`
            finish = "tool_calls"
        return Reply(self._builder.parts(), self._builder.tool_calls(), finish, self._usage)

    def _choice(self, choice: dict[str, Any]) -> Sequence[Delta]:
        delta = choice.get("delta") or {}
        out: list[Delta] = []
        if details := delta.get("reasoning_details"):
            out.extend(self._details(details))
        elif thought := delta.get("reasoning_content") or delta.get("reasoning"):
            out.append(self._builder.add(ReasoningDelta(str(thought))))
        if text := delta.get("content") or delta.get("refusal"):
            out.extend(self._content(text))
        for position, call in enumerate(delta.get("tool_calls") or ()):
            out.extend(self._call(position, call))
        if reason := choice.get("finish_reason"):
            if reason in _ABORTED:
                message = f"{self._vendor}: the model gave up in the middle of its reply ({reason})."
                raise ModelError(_ABORTED[reason], message, retryable=True)
            self._finish = _FINISH.get(reason, "stop")
            out.extend(self._builder.close_calls())
        return out

    def _content(self, content: Any) -> Sequence[Delta]:
        if isinstance(content, str):
            return (self._builder.add(TextDelta(content)),)
        out: list[Delta] = []
        for piece in content:
            if piece.get("type") == "thinking":
                thought = "".join(inner.get("text") or "" for inner in piece.get("thinking") or ())
                out.append(self._builder.add(ReasoningDelta(thought)))
            elif text := piece.get("text"):
                out.append(self._builder.add(TextDelta(text)))
        return out

    def _details(self, details: Sequence[dict[str, Any]]) -> Sequence[Delta]:
        """Text is forwarded as it arrives; all other fields are kept as the signature, to be sent back."""
        out: list[Delta] = []
        for detail in details:
            kind, rest = detail.get("type"), dict(detail)
            if kind == "reasoning.encrypted":
                hidden = HiddenReasoningDelta(orjson.dumps(detail).decode(), DETAILS, detail.get("id"))
                out.append(self._builder.add(hidden))
                continue
            text = str(rest.pop("text", None) or rest.pop("summary", None) or "")
            signature = orjson.dumps(rest).decode() if detail.get("signature") else None
            out.append(self._builder.add(ReasoningDelta(text, signature, DETAILS, detail.get("id"))))
        return out

    def _call(self, position: int, piece: dict[str, Any]) -> Sequence[Delta]:
        function = piece.get("function") or {}
        index = piece.get("index")
        index = position if index is None else int(index)
        call = self._by_index.get(index)
        out: list[Delta] = []
        if call is None or (piece.get("id") and function.get("name") and piece["id"] != call.id):
            call = CallBuilder(self._unused_id(piece.get("id")), function.get("name") or "")
            self._by_index[index] = call
            out.append(self._builder.begin(call))
        arguments = function.get("arguments")
        if arguments:
            text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
            out.append(self._builder.add(CallDelta(call.id, arguments=text)))
        return out

    def _unused_id(self, given: str | None) -> str:
        return given if given and given not in self._builder.calls else self._make_call_id(len(self._builder.calls))


def usage_of(usage: dict[str, Any]) -> Usage:
    read = usage.get("prompt_tokens_details") or {}
    wrote = usage.get("completion_tokens_details") or {}
    cached = read.get("cached_tokens")
    return Usage(
        prompt_tokens=usage.get("prompt_tokens") or 0,
        completion_tokens=usage.get("completion_tokens") or 0,
        cached_input_tokens=usage.get("prompt_cache_hit_tokens") if cached is None else cached,
        cache_write_tokens=read.get("cache_write_tokens"),
        reasoning_tokens=wrote.get("reasoning_tokens"),
    )
