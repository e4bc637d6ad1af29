"""The server side of the OpenAI Responses API, for `ModelServer`: parses requests and writes replies.

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
from holdfast.testing.script import Call, Hide, Say, Step, Think, argument_pieces, usage_of
from holdfast.testing.wire_formats.openai_wire import CODES
from holdfast.testing.wire_formats.request_reading import as_messages, image_of_url


class ResponsesWire:
    """Writes one reply."""

    def __init__(self, model: str) -> None:
        self._response = {"id": f"resp_{uuid.uuid4().hex}", "object": "response", "model": model, "output": []}
        self._items: list[dict[str, Any]] = []
        self._sequence = 0

    def begin(self) -> bytes:
        response = {**self._response, "status": "in_progress"}
        begun = {"response": response}
        return self._event("response.created", begun) + self._event("response.in_progress", begun)

    def frames(self, step: Step) -> Iterator[bytes]:
        """The frames of a step; each holds about one token."""
        match step:
            case Say(text=text):
                part = {"type": "output_text", "text": text, "annotations": []}
                item = {"id": _id("msg"), "type": "message", "role": "assistant", "content": [part]}
                yield from self._filled(item, item | {"content": []}, "response.output_text", words_of(text))
            case Think(text=text, signature=signature):
                item = {"id": _id("rs"), "type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}
                empty = item | {"summary": []}
                item |= {"encrypted_content": signature} if signature else {}
                yield from self._filled(item, empty, "response.reasoning_summary_text", words_of(text))
            case Hide(data=data):
                item = {"id": _id("rs"), "type": "reasoning", "summary": [], "encrypted_content": data}
                yield from self._filled(item, item | {"encrypted_content": ""}, "", ())
            case Call():
                item = _function_call(step)
                pieces = list(argument_pieces(step))
                yield from self._filled(item, item | {"arguments": ""}, "response.function_call_arguments", pieces)
            case _:
                return

    def end(self, finish: FinishReason, usage: Usage) -> bytes:
        response = {**self._response, "output": self._items, "usage": _usage(usage)}
        if finish in ("length", "content_filter"):
            reason = "max_output_tokens" if finish == "length" else "content_filter"
            response |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
            return self._event("response.incomplete", {"response": response})
        return self._event("response.completed", {"response": response | {"status": "completed"}})

    def error(self, kind: ModelErrorKind, message: str) -> bytes:
        """An overload is an error event, everything else a failed response: the API has both."""
        code = CODES.get(kind, "server_error")
        if kind == "llm_overloaded":
            return self._event("error", {"code": code, "message": message, "param": None})
        failed = {**self._response, "status": "failed", "error": {"code": code, "message": message}}
        return self._event("response.failed", {"response": failed})

    def whole(self, steps: Sequence[Step]) -> dict[str, Any]:
        """The whole reply, for a request without streaming."""
        for step in steps:
            for _ in self.frames(step):
                pass
        return {**self._response, "status": "completed", "output": self._items, "usage": _usage(usage_of(steps))}

    def _filled(
        self, item: dict[str, Any], empty: Mapping[str, Any], kind: str, pieces: Sequence[str]
    ) -> Iterator[bytes]:
        index = len(self._items)
        self._items.append(item)
        yield self._event("response.output_item.added", {"output_index": index, "item": empty})
        head = b'event: %b.delta\ndata: {"type":"%b.delta","item_id":"%b","output_index":%d,"content_index":0,"delta":'
        start = head % (kind.encode(), kind.encode(), item["id"].encode(), index)
        for piece in pieces:
            yield start + orjson.dumps(piece) + b"}\n\n"
        yield self._event("response.output_item.done", {"output_index": index, "item": item})

    def _event(self, name: str, data: Mapping[str, Any]) -> bytes:
        self._sequence += 1
        said = {"type": name, "sequence_number": self._sequence, **data}
        return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(said))


def read_request(body: Mapping[str, Any]) -> ModelRequest:
    """The client's request as a `ModelRequest`, for the demo model."""
    system = [SystemBody(body["instructions"])] if body.get("instructions") else []
    return ModelRequest(
        model=str(body.get("model", "")),
        messages=as_messages([*system, *_bodies(_items(body.get("input")))]),
        tools=tuple(_tool(tool) for tool in body.get("tools") or () if tool["type"] == "function"),
        tool_choice=_tool_choice(body.get("tool_choice")),
        settings=ModelSettings(parallel_tool_calls=body.get("parallel_tool_calls") is not False),
    )


def _items(said: Any) -> Sequence[Mapping[str, Any]]:
    return [{"role": "user", "content": said}] if isinstance(said, str) else said or ()


def _bodies(items: Sequence[Mapping[str, Any]]) -> Iterator[Body]:
    """Consecutive items of one reply, or of its results, become one body."""
    said: list[Text] = []
    calls: list[ToolCall] = []
    returned: list[ToolResult] = []
    for item in items:
        kind = item.get("type") or "message"
        is_reply = kind in ("function_call", "reasoning") or item.get("role") == "assistant"
        if (said or calls) and not is_reply:
            yield AssistantBody(tuple(said), tuple(calls))
            said, calls = [], []
        if returned and kind != "function_call_output":
            yield ToolReturnsBody(tuple(returned))
            returned = []
        match kind, item.get("role"):
            case "function_call", _:
                calls.append(ToolCall(item["call_id"], item["name"], item["arguments"]))
            case "function_call_output", _:
                returned.append(ToolResult(item["call_id"], "success", _text(item["output"])))
            case "message", "assistant":
                said.append(Text(_text(item["content"])))
            case "message", "user":
                yield UserBody(_parts(item["content"]))
            case "message", _:
                yield SystemBody(_text(item["content"]))
            case _:
                pass
    if said or calls:
        yield AssistantBody(tuple(said), tuple(calls))
    if returned:
        yield ToolReturnsBody(tuple(returned))


def _parts(content: Any) -> tuple[Text | Image, ...]:
    if isinstance(content, str):
        return (Text(content),)
    return tuple(
        image_of_url(part["image_url"]) if part["type"] == "input_image" else Text(part["text"]) for part in content
    )


def _text(content: Any) -> str:
    return "\n".join(part.text for part in _parts(content) if isinstance(part, Text))


def _tool(tool: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(tool["name"], tool.get("description") or "", tool.get("parameters") or {})


def _tool_choice(said: Any) -> ToolChoice:
    if isinstance(said, dict):
        return OneTool(said["name"])
    return AnyTool() if said == "required" else "none" if said == "none" else "auto"


def _function_call(call: Call) -> dict[str, Any]:
    call_id = call.id if call.id is not None else _id("call")
    head = {"id": _id("fc"), "type": "function_call", "call_id": call_id, "name": call.name}
    return {**head, "arguments": call.arguments_text()}


def _id(front: str) -> str:
    return f"{front}_{uuid.uuid4().hex[:24]}"


def _usage(usage: Usage) -> dict[str, Any]:
    said: dict[str, Any] = {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
    if usage.cached_input_tokens is not None:
        said["input_tokens_details"] = {"cached_tokens": usage.cached_input_tokens}
    if usage.reasoning_tokens is not None:
        said["output_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return said
