"""Encodes a `ModelRequest` as the body of an OpenAI Responses request.

The conversation is a flat list of items: messages, reasoning, calls and their outputs. Nothing is stored at the vendor
(`store: false`), so reasoning arrives encrypted and is sent back encrypted, and only together with an item after it:
the API rejects reasoning that nothing follows. The API treats tools as strict unless `strict` is false.
https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from holdfast.core.conversation.messages import (
    HiddenReasoning,
    Image,
    Part,
    Reasoning,
    SystemBody,
    Text,
    ToolCall,
    ToolResult,
    UserBody,
)
from holdfast.core.model import AnyTool, ModelRequest, ModelSettings, OneTool, ToolChoice, ToolSpec
from holdfast.core.tools.return_clipping import clip_content
from holdfast.providers.encoding.content import JsonObject, encode_content
from holdfast.providers.encoding.history_cache import HistoryCache, split_system
from holdfast.providers.encoding.inline_images import OMITTED, url_of
from holdfast.providers.encoding.strict_schemas import OPENAI, strict_schema
from holdfast.providers.encoding.turns import AssistantTurn, ResultsTurn, SpokenTurn, Turn, in_order
from holdfast.providers.openai.quirks import O_SERIES, is_reasoning, unprefixed

ORIGIN = "openai-responses"
NO_OUTPUT = "[No output]"


def request_body(request: ModelRequest, history_cache: HistoryCache, *, summaries: bool = True) -> JsonObject:
    """The whole body. `summaries` requests reasoning summaries, which OpenAI gives only to verified organisations."""
    system, conversation = split_system(request.messages)
    body: JsonObject = {
        "model": request.model,
        "input": history_cache.encode(conversation, limit=request.tool_return_char_limit),
        "stream": True,
        "store": False,
    }
    if system:
        body["instructions"] = "\n\n".join(system)
    if request.tools:
        body["tools"] = [_tool(spec, strict=spec.strict or request.settings.strict) for spec in request.tools]
        body["tool_choice"] = _tool_choice(request.tool_choice)
        if not O_SERIES.match(unprefixed(request.model)):
            body["parallel_tool_calls"] = request.settings.parallel_tool_calls
    body.update(_settings(request, summaries=summaries))
    body.update(request.settings.extra_body)
    return body


def append(encoded: list[JsonObject], turn: Turn, limit: int | None) -> None:
    """Encode one turn, for `HistoryCache`."""
    match turn:
        case SpokenTurn(body):
            role = "system" if isinstance(body, SystemBody) else "user"
            if content := _content(body.parts if isinstance(body, UserBody) else (Text(body.text),)):
                encoded.append({"role": role, "content": content})
        case AssistantTurn():
            encoded.extend(_without_trailing_reasoning(map(_item, in_order(turn))))
        case ResultsTurn(results):
            encoded.extend(_output(result, limit) for result in results)


def _without_trailing_reasoning(items: Iterable[JsonObject | None]) -> Iterator[JsonObject]:
    """All items except reasoning at the end, which the API rejects."""
    held: list[JsonObject] = []
    for item in items:
        if item is None:
            continue
        held.append(item)
        if item.get("type") != "reasoning":
            yield from held
            held = []


def _item(part: Part | ToolCall) -> JsonObject | None:
    match part:
        case Text(text=text) if text.strip():
            return {"role": "assistant", "content": [{"type": "output_text", "text": text}]}
        case Reasoning(text=text, signature=str(encrypted), origin="openai-responses"):
            summary = [{"type": "summary_text", "text": text}] if text else []
            return _reasoning(encrypted, part.id, summary)
        case HiddenReasoning(data=encrypted, origin="openai-responses"):
            return _reasoning(encrypted, part.id, [])
        case ToolCall(id=call_id, name=name, arguments=arguments):
            return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments or "{}"}
        case _:
            return None


def _reasoning(encrypted: str, item_id: str | None, summary: Sequence[JsonObject]) -> JsonObject:
    item: JsonObject = {"type": "reasoning", "summary": summary, "encrypted_content": encrypted}
    return {**item, "id": item_id} if item_id else item


def _output(result: ToolResult, limit: int | None) -> JsonObject:
    content = clip_content(result.content, limit)
    output: str | list[JsonObject] = content if isinstance(content, str) else _content(content)
    return {"type": "function_call_output", "call_id": result.call_id, "output": output or NO_OUTPUT}


def _content(parts: Iterable[Part]) -> list[JsonObject]:
    return encode_content(parts, _text, _image)


def _text(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


def _image(image: Image) -> JsonObject:
    url = url_of(image)
    if not url:
        return _text(OMITTED)
    return {"type": "input_image", "image_url": url, "detail": image.detail or "auto"}


def _tool(spec: ToolSpec, *, strict: bool) -> JsonObject:
    schema = strict_schema(spec.parameters, OPENAI) if strict else None
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters if schema is None else schema,
        "strict": schema is not None,
    }


def _tool_choice(choice: ToolChoice) -> str | JsonObject:
    match choice:
        case AnyTool():
            return "required"
        case OneTool(name=name):
            return {"type": "function", "name": name}
        case _:
            return choice


def _settings(request: ModelRequest, *, summaries: bool) -> JsonObject:
    """The fields for settings that are set and that the model accepts."""
    settings = request.settings
    fields: dict[str, Any] = {"max_output_tokens": settings.max_output_tokens, "prompt_cache_key": request.key}
    if is_reasoning(request.model):
        fields["include"] = ["reasoning.encrypted_content"]
        reasoning = {"effort": settings.reasoning_effort, "summary": "auto" if summaries else None}
        fields["reasoning"] = {field: value for field, value in reasoning.items() if value} or None
    else:
        fields["temperature"] = settings.temperature
    fields["text"] = _text_settings(settings) or None
    return {field: value for field, value in fields.items() if value is not None}


def _text_settings(settings: ModelSettings) -> JsonObject:
    """The `text` field: the answer's format, which is not nested in this API, and its verbosity."""
    text: JsonObject = {}
    wanted = settings.response_format or {}
    if wanted.get("type") == "json_schema":
        named = wanted.get("json_schema") or {}
        schema = {"name": named.get("name") or "answer", "schema": named.get("schema") or named}
        text["format"] = {"type": "json_schema", **schema, "strict": bool(named.get("strict"))}
    elif wanted.get("type") == "json_object":
        text["format"] = {"type": "json_object"}
    if settings.verbosity:
        text["verbosity"] = settings.verbosity
    return text
