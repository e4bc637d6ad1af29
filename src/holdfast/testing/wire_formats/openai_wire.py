"""The server side of the OpenAI Chat Completions API, for `ModelServer`: parses requests and writes replies.

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
    Part,
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
from holdfast.testing.script import Call, Say, Step, Think, argument_pieces, finish_of, usage_of
from holdfast.testing.wire_formats.request_reading import as_messages, image_of_url

CODES: dict[ModelErrorKind, str] = {
    "llm_authentication": "invalid_api_key",
    "llm_insufficient_credits": "insufficient_quota",
    "llm_rate_limit": "rate_limit_exceeded",
    "llm_overloaded": "overloaded",
    "llm_bad_request": "invalid_request_error",
    "context_overflow": "context_length_exceeded",
    "llm_timeout": "timeout_error",
}


class OpenAIWire:
    """Writes one reply."""

    def __init__(self, model: str) -> None:
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._model = model
        head = {"id": self._id, "object": "chat.completion.chunk", "created": 1, "model": model}
        self._head = b"data: " + orjson.dumps(head)[:-1] + b',"choices":[{"index":0,"finish_reason":null,"delta":'
        self._calls = 0

    def begin(self) -> bytes:
        return self._frame({"role": "assistant", "content": ""})

    def frames(self, step: Step) -> Iterator[bytes]:
        """The frames of a step; each holds about one token."""
        match step:
            case Say(text=text):
                for word in words_of(text):
                    yield self._head + b'{"content":' + orjson.dumps(word) + b"}}]}\n\n"
            case Think(text=text):
                for word in words_of(text):
                    yield self._head + b'{"reasoning_content":' + orjson.dumps(word) + b"}}]}\n\n"
            case Call():
                yield from self._call(step)
            case _:
                return

    def end(self, finish: FinishReason, usage: Usage) -> bytes:
        last = self._frame({}).replace(b'"finish_reason":null', b'"finish_reason":"%b"' % finish.encode())
        counts = {"id": self._id, "object": "chat.completion.chunk", "choices": [], "usage": _usage(usage)}
        return last + b"data: " + orjson.dumps(counts) + b"\n\ndata: [DONE]\n\n"

    def error(self, kind: ModelErrorKind, message: str) -> bytes:
        said = {"message": message, "type": "server_error", "code": CODES.get(kind, "server_error")}
        return b"data: " + orjson.dumps({"error": said}) + b"\n\n"

    def whole(self, steps: Sequence[Step]) -> dict[str, Any]:
        """The whole reply, for a request without streaming."""
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if text := "".join(step.text for step in steps if isinstance(step, Say)):
            message["content"] = text
        if thought := "".join(step.text for step in steps if isinstance(step, Think)):
            message["reasoning_content"] = thought
        if calls := [step for step in steps if isinstance(step, Call)]:
            message["tool_calls"] = [{"type": "function", **_call_head(call, call.arguments_text())} for call in calls]
        choice = {"index": 0, "message": message, "finish_reason": finish_of(steps)}
        head = {"id": self._id, "object": "chat.completion", "created": 1, "model": self._model}
        return {**head, "choices": [choice], "usage": _usage(usage_of(steps))}

    def _call(self, call: Call) -> Iterator[bytes]:
        index = self._calls
        self._calls += 1
        yield self._frame({"tool_calls": [{"index": index, "type": "function", **_call_head(call, "")}]})
        for piece in argument_pieces(call):
            yield self._frame({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})

    def _frame(self, delta: Mapping[str, Any]) -> bytes:
        return self._head + orjson.dumps(delta) + b"}]}\n\n"


def failure(status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def listing(models: Sequence[str], window: int) -> dict[str, Any]:
    entry = {"object": "model", "owned_by": "holdfast"}
    windows = {model: {} if "embedding" in model else {"context_length": window} for model in models}
    return {"object": "list", "data": [{"id": model, **entry, **windows[model]} for model in models]}


def read_request(body: Mapping[str, Any]) -> ModelRequest:
    """The client's request as a `ModelRequest`, for the demo model."""
    tools = tuple(_tool(tool["function"]) for tool in body.get("tools") or ())
    return ModelRequest(
        model=str(body.get("model", "")),
        messages=as_messages(_bodies(body.get("messages") or ())),
        tools=tools,
        tool_choice=_tool_choice(body.get("tool_choice")),
        settings=ModelSettings(parallel_tool_calls=body.get("parallel_tool_calls") is not False),
    )


def _bodies(messages: Sequence[Mapping[str, Any]]) -> Iterator[Body]:
    returned: list[ToolResult] = []
    for message in messages:
        if message["role"] == "tool":
            returned.append(ToolResult(message["tool_call_id"], "success", _text(message.get("content"))))
            continue
        if returned:
            yield ToolReturnsBody(tuple(returned))
            returned = []
        match message["role"]:
            case "assistant":
                text = _text(message.get("content"))
                yield AssistantBody(
                    (Text(text),) if text else (), tuple(map(_tool_call, message.get("tool_calls") or ()))
                )
            case "user":
                yield UserBody(_parts(message.get("content")))
            case _:
                yield SystemBody(_text(message.get("content")))
    if returned:
        yield ToolReturnsBody(tuple(returned))


def _parts(content: Any) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),)
    return tuple(_part(part) for part in content or ())


def _part(part: Mapping[str, Any]) -> Text | Image:
    return image_of_url(part["image_url"]["url"]) if part["type"] == "image_url" else Text(part.get("text", ""))


def _text(content: Any) -> str:
    return "\n".join(part.text for part in _parts(content) if isinstance(part, Text))


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    return ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])


def _tool(function: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(function["name"], function.get("description") or "", function.get("parameters") or {})


def _tool_choice(said: Any) -> ToolChoice:
    if isinstance(said, dict):
        return OneTool(said["function"]["name"])
    return AnyTool() if said == "required" else "none" if said == "none" else "auto"


def _call_head(call: Call, arguments: str) -> dict[str, Any]:
    call_id = call.id if call.id is not None else f"call_{uuid.uuid4().hex[:24]}"
    return {"id": call_id, "function": {"name": call.name, "arguments": arguments}}


def _usage(usage: Usage) -> dict[str, Any]:
    said: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
    if usage.cached_input_tokens is not None:
        said["prompt_tokens_details"] = {"cached_tokens": usage.cached_input_tokens}
    if usage.reasoning_tokens is not None:
        said["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return said
