"""The server side of the Gemini API, for `ModelServer`: parses requests and writes replies, with CRLF as Google does.

Frames are joined from prepared bytes, so that this server does not dominate the benchmarks that stream through it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from holdfast.core.conversation.messages import (
    AssistantBody,
    Body,
    Image,
    SystemBody,
    Text,
    ToolCall,
    ToolResult,
    ToolReturnsBody,
    UserBody,
)
from holdfast.core.errors import ModelErrorKind
from holdfast.core.model import AnyTool, FinishReason, ModelRequest, ModelSettings, OneTool, ToolChoice, ToolSpec, Usage
from holdfast.providers.demo.demo_model import words_of
from holdfast.testing.script import STATUS_OF_KIND, Call, Hide, Say, Step, Think, finish_of, usage_of
from holdfast.testing.wire_formats.request_reading import as_messages

_REASONS: dict[FinishReason, str] = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_TOO_LONG = "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."


class GeminiWire:
    """Writes one reply."""

    def __init__(self, model: str) -> None:
        self._tail = {"modelVersion": model, "responseId": uuid.uuid4().hex}

    def begin(self) -> bytes:
        return b""

    def frames(self, step: Step) -> Iterator[bytes]:
        """The frames of a step; each holds about one token, but a call is one frame."""
        for part in _parts(step):
            yield b'data: {"candidates":[{"content":{"parts":[' + orjson.dumps(part) + b'],"role":"model"}}]}\r\n\r\n'

    def end(self, finish: FinishReason, usage: Usage) -> bytes:
        candidate = {"content": {"parts": [], "role": "model"}, "finishReason": _REASONS[finish], "index": 0}
        return _event({"candidates": [candidate], "usageMetadata": _usage(usage), **self._tail})

    def error(self, kind: ModelErrorKind, message: str) -> bytes:
        return _event(failure(STATUS_OF_KIND[kind], _TOO_LONG if kind == "context_overflow" else message))

    def whole(self, steps: Sequence[Step]) -> dict[str, Any]:
        """The whole reply, for a request without streaming."""
        content = {"parts": [part for step in steps for part in _parts(step)], "role": "model"}
        candidate = {"content": content, "finishReason": _REASONS[finish_of(steps)], "index": 0}
        return {"candidates": [candidate], "usageMetadata": _usage(usage_of(steps)), **self._tail}


def failure(status: int, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, "UNKNOWN")}}


def listing(models: Sequence[str], window: int) -> dict[str, Any]:
    return {"models": [_listed(model, window) for model in models]}


def _listed(model: str, window: int) -> dict[str, Any]:
    methods = ["embedContent"] if "embedding" in model else ["generateContent", "countTokens"]
    limits = {"inputTokenLimit": window, "outputTokenLimit": 8192}
    return {"name": f"models/{model}", "displayName": model, "supportedGenerationMethods": methods, **limits}


def read_request(body: Mapping[str, Any]) -> ModelRequest:
    """The client's request as a `ModelRequest`, for the demo model."""
    system = _text((body.get("systemInstruction") or {}).get("parts") or ())
    declared = [one for tool in body.get("tools") or () for one in tool.get("functionDeclarations") or ()]
    said = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    bodies: list[Body] = [SystemBody(system)] if system else []
    return ModelRequest(
        model=str(body.get("model", "")),
        messages=as_messages([*bodies, *_bodies(body["contents"])]),
        tools=tuple(
            ToolSpec(one["name"], one.get("description") or "", one.get("parametersJsonSchema") or {})
            for one in declared
        ),
        tool_choice=_tool_choice(said),
        settings=ModelSettings(parallel_tool_calls=True),
    )


def _bodies(contents: Sequence[Mapping[str, Any]]) -> Iterator[Body]:
    """Message bodies from Gemini's contents. Calls without an id are identified by the name of their tool."""
    for content in contents:
        parts = content["parts"]
        calls = tuple(_tool_call(part["functionCall"]) for part in parts if "functionCall" in part)
        returned = tuple(_result(part["functionResponse"]) for part in parts if "functionResponse" in part)
        seen = tuple(
            _part(part) for part in parts if ("text" in part and not part.get("thought")) or "inlineData" in part
        )
        if content.get("role") == "model":
            yield AssistantBody(seen, calls)
            continue
        if returned:
            yield ToolReturnsBody(returned)
        if seen:
            yield UserBody(seen)


def _part(part: Mapping[str, Any]) -> Text | Image:
    if "inlineData" in part:
        return Image(data=part["inlineData"]["data"], media_type=part["inlineData"]["mimeType"])
    return Text(part["text"])


def _text(parts: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(part["text"] for part in parts)


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    return ToolCall(call.get("id") or call["name"], call["name"], orjson.dumps(call.get("args") or {}).decode())


def _result(said: Mapping[str, Any]) -> ToolResult:
    outcome = said["response"]
    call_id = said.get("id") or said["name"]
    if "error" in outcome:
        return ToolResult(call_id, "error", str(outcome["error"]))
    return ToolResult(call_id, "success", str(outcome.get("output", "")))


def _tool_choice(said: Mapping[str, Any]) -> ToolChoice:
    match said.get("mode"):
        case "ANY":
            names: list[str] = said.get("allowedFunctionNames") or []
            return OneTool(names[0]) if len(names) == 1 else AnyTool()
        case "NONE":
            return "none"
        case _:
            return "auto"


def _parts(step: Step) -> Iterator[dict[str, Any]]:
    match step:
        case Say(text=text):
            yield from ({"text": word} for word in words_of(text))
        case Think(text=text, signature=signature):
            yield from ({"text": word, "thought": True} for word in words_of(text))
            if signature:
                yield {"text": "", "thought": True, "thoughtSignature": signature}
        case Hide(data=data):
            yield {"text": "", "thoughtSignature": data}
        case Call(name=name, arguments=arguments):
            call = {"name": name, "args": arguments}
            yield {"functionCall": {"id": step.id, **call} if step.id else call}
        case _:
            return


def _usage(usage: Usage) -> dict[str, Any]:
    """Usage in Gemini's format, which counts reasoning apart from the reply."""
    thoughts = usage.reasoning_tokens
    said = {
        "promptTokenCount": usage.prompt_tokens,
        "candidatesTokenCount": usage.completion_tokens - (thoughts or 0),
        "totalTokenCount": usage.total_tokens,
        "cachedContentTokenCount": usage.cached_input_tokens,
        "thoughtsTokenCount": thoughts,
    }
    return {name: count for name, count in said.items() if count is not None}


def _event(said: Mapping[str, Any]) -> bytes:
    return b"data: %b\r\n\r\n" % orjson.dumps(said)
