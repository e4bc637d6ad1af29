"""The server side of the Anthropic Messages API, for `ModelServer`: parses requests and writes replies.

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
from holdfast.testing.script import Call, Hide, Say, Step, Think, argument_pieces, finish_of, usage_of
from holdfast.testing.wire_formats.request_reading import as_messages

_STOP: dict[FinishReason, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_TYPES: dict[ModelErrorKind, str] = {
    "llm_authentication": "authentication_error",
    "llm_insufficient_credits": "billing_error",
    "llm_rate_limit": "rate_limit_error",
    "llm_overloaded": "overloaded_error",
    "llm_bad_request": "invalid_request_error",
    "context_overflow": "request_too_large",
    "llm_timeout": "timeout_error",
}


class AnthropicWire:
    """Writes one reply."""

    def __init__(self, model: str) -> None:
        self._id = f"msg_{uuid.uuid4().hex[:24]}"
        self._model = model
        self._blocks = 0

    def begin(self) -> bytes:
        usage = {"input_tokens": 0, "output_tokens": 0}
        head = {"id": self._id, "type": "message", "role": "assistant", "model": self._model}
        message: dict[str, Any] = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        return _event("message_start", {"message": message}) + _event("ping", {})

    def frames(self, step: Step) -> Iterator[bytes]:
        """The frames of a step; each holds about one token."""
        match step:
            case Say(text=text):
                block, pieces = {"type": "text", "text": ""}, [("text_delta", "text", word) for word in words_of(text)]
            case Think(text=text, signature=signature):
                block = {"type": "thinking", "thinking": "", "signature": ""}
                pieces = [("thinking_delta", "thinking", word) for word in words_of(text)]
                pieces += [("signature_delta", "signature", signature)] if signature else []
            case Hide(data=data):
                block, pieces = {"type": "redacted_thinking", "data": data}, []
            case Call():
                block = _tool_use(step) | {"input": {}}
                pieces = [("input_json_delta", "partial_json", piece) for piece in argument_pieces(step)]
            case _:
                return
        yield from self._block(block, pieces)

    def end(self, finish: FinishReason, usage: Usage) -> bytes:
        delta = {"stop_reason": _STOP[finish], "stop_sequence": None}
        return _event("message_delta", {"delta": delta, "usage": _usage(usage)}) + _event("message_stop", {})

    def error(self, kind: ModelErrorKind, message: str) -> bytes:
        return _event("error", {"error": {"type": _TYPES.get(kind, "api_error"), "message": message}})

    def whole(self, steps: Sequence[Step]) -> dict[str, Any]:
        """The whole reply, for a request without streaming."""
        content = [block for step in steps if (block := _whole_block(step)) is not None]
        head = {"id": self._id, "type": "message", "role": "assistant", "model": self._model, "content": content}
        return {**head, "stop_reason": _STOP[finish_of(steps)], "stop_sequence": None, "usage": _usage(usage_of(steps))}

    def _block(self, block: Mapping[str, Any], pieces: Sequence[tuple[str, str, str]]) -> Iterator[bytes]:
        index = self._blocks
        self._blocks += 1
        yield _event("content_block_start", {"index": index, "content_block": block})
        start = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":' % index
        for kind, field, text in pieces:
            yield start + b'{"type":"%b","%b":%b}}\n\n' % (kind.encode(), field.encode(), orjson.dumps(text))
        yield _event("content_block_stop", {"index": index})


def failure(status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "api_error"
    return {"type": "error", "error": {"type": kind, "message": message}}


def listing(models: Sequence[str], window: int) -> dict[str, Any]:
    data = [{"type": "model", "id": model, "display_name": model, "max_input_tokens": window} for model in models]
    return {"data": data, "has_more": False, "first_id": None, "last_id": None}


def read_request(body: Mapping[str, Any]) -> ModelRequest:
    """The client's request as a `ModelRequest`, for the demo model."""
    choice = body.get("tool_choice") or {}
    system = _text(body.get("system"))
    bodies = [SystemBody(system)] if system else []
    return ModelRequest(
        model=str(body.get("model", "")),
        messages=as_messages([*bodies, *(one for message in body["messages"] for one in _bodies(message))]),
        tools=tuple(_tool(tool) for tool in body.get("tools") or ()),
        tool_choice=_tool_choice(choice),
        settings=ModelSettings(parallel_tool_calls=not choice.get("disable_parallel_tool_use")),
    )


def _bodies(message: Mapping[str, Any]) -> Iterator[Body]:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    seen = tuple(_part(block) for block in blocks if block["type"] in ("text", "image"))
    if message["role"] == "assistant":
        calls = [block for block in blocks if block["type"] == "tool_use"]
        yield AssistantBody(seen, tuple(ToolCall(c["id"], c["name"], orjson.dumps(c["input"]).decode()) for c in calls))
        return
    if returned := tuple(_result(block) for block in blocks if block["type"] == "tool_result"):
        yield ToolReturnsBody(returned)
    if seen:
        yield UserBody(seen)


def _part(block: Mapping[str, Any]) -> Text | Image:
    if block["type"] == "text":
        return Text(block["text"])
    source = block["source"]
    return Image(url=source.get("url"), data=source.get("data"), media_type=source.get("media_type"))


def _result(block: Mapping[str, Any]) -> ToolResult:
    text = _text(block.get("content"))
    return ToolResult(block["tool_use_id"], "error" if block.get("is_error") else "success", text)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content or () if block["type"] == "text")


def _tool(tool: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(tool["name"], tool.get("description") or "", tool.get("input_schema") or {})


def _tool_choice(said: Mapping[str, Any]) -> ToolChoice:
    match said.get("type"):
        case "tool":
            return OneTool(said["name"])
        case "any":
            return AnyTool()
        case "none":
            return "none"
        case _:
            return "auto"


def _whole_block(step: Step) -> dict[str, Any] | None:
    match step:
        case Say(text=text):
            return {"type": "text", "text": text}
        case Think(text=text, signature=signature):
            return {"type": "thinking", "thinking": text, "signature": signature or ""}
        case Hide(data=data):
            return {"type": "redacted_thinking", "data": data}
        case Call():
            return _tool_use(step)
        case _:
            return None


def _tool_use(call: Call) -> dict[str, Any]:
    call_id = call.id if call.id is not None else f"toolu_{uuid.uuid4().hex[:24]}"
    arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
    return {"type": "tool_use", "id": call_id, "name": call.name, "input": arguments}


def _usage(usage: Usage) -> dict[str, Any]:
    """Usage in Anthropic's format, where input tokens do not include those read from or written to the cache."""
    read, written = usage.cached_input_tokens, usage.cache_write_tokens
    said = {
        "input_tokens": usage.prompt_tokens - (read or 0) - (written or 0),
        "output_tokens": usage.completion_tokens,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
    }
    return {name: count for name, count in said.items() if count is not None}


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps({"type": name, **data}))
