"""Encodes a `ModelRequest` as the body of a Chat Completions request.

Tool returns are one `tool` message each and contain only text; OpenAI's reasoning models reject a temperature and
`parallel_tool_calls`. `quirks` says how servers differ: the name of the token limit, the fields they reject, whether
they need their reasoning back. https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson

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
    plain_text,
)
from holdfast.core.model import AnyTool, ModelRequest, OneTool, ToolChoice, ToolSpec
from holdfast.core.tools.return_clipping import clip_content
from holdfast.providers.encoding.content import JsonObject, encode_content
from holdfast.providers.encoding.history_cache import Append, HistoryCache, split_system
from holdfast.providers.encoding.inline_images import OMITTED, url_of
from holdfast.providers.encoding.strict_schemas import OPENAI, strict_schema
from holdfast.providers.encoding.turns import AssistantTurn, ResultsTurn, SpokenTurn, Turn
from holdfast.providers.openai.quirks import O_SERIES, Quirks, is_reasoning, unprefixed

NO_OUTPUT = "[No output]"
DETAILS = "reasoning_details"  # the origin of reasoning that arrived as OpenRouter's `reasoning_details`


def request_body(request: ModelRequest, history_cache: HistoryCache, quirks: Quirks) -> JsonObject:
    """The whole body. `history_cache` must be made with `append_for` the same quirks."""
    system, conversation = split_system(request.messages)
    body: JsonObject = {
        "model": request.model,
        "messages": [
            *({"role": "system", "content": text} for text in system),
            *history_cache.encode(conversation, limit=request.tool_return_char_limit),
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(spec, strict=spec.strict or request.settings.strict) for spec in request.tools]
        body["tool_choice"] = _tool_choice(request.tool_choice)
    body.update(_settings(request, quirks))
    body = {field: value for field, value in body.items() if field not in quirks.refuses}
    body.update(request.settings.extra_body)
    return body


def append_for(quirks: Quirks) -> Append:
    """The encoder of one turn, for `HistoryCache`."""
    return partial(_append, quirks)


def _append(quirks: Quirks, encoded: list[JsonObject], turn: Turn, limit: int | None) -> None:
    match turn:
        case SpokenTurn(body):
            role = "system" if isinstance(body, SystemBody) else "user"
            if content := _content(body.parts if isinstance(body, UserBody) else (Text(body.text),)):
                encoded.append({"role": role, "content": content})
        case AssistantTurn(parts, calls):
            message = _assistant(parts, calls, quirks)
            if "content" in message or "tool_calls" in message:
                encoded.append(message)
        case ResultsTurn(results):
            encoded.extend(_result(result, limit, quirks) for result in results)


def _assistant(parts: tuple[Part, ...], calls: Sequence[ToolCall], quirks: Quirks) -> JsonObject:
    message: JsonObject = {"role": "assistant"}
    if (text := plain_text(parts)).strip():
        message["content"] = text
    if calls:
        message["tool_calls"] = [_call(call, quirks) for call in calls]
    match quirks.reasoning_back:
        case "reasoning_content":
            if thought := "".join(part.text for part in parts if isinstance(part, Reasoning)):
                message["reasoning_content"] = thought
        case "reasoning_details":
            if details := [detail for part in parts if (detail := _detail(part)) is not None]:
                message["reasoning_details"] = details
    return message


def _detail(part: Part) -> JsonObject | None:
    """A piece of reasoning as it arrived; its signature holds all fields but the text."""
    match part:
        case Reasoning(text=text, signature=str(rest), origin="reasoning_details"):
            detail: JsonObject = orjson.loads(rest)
            return {**detail, "summary" if detail.get("type") == "reasoning.summary" else "text": text}
        case HiddenReasoning(data=data, origin="reasoning_details"):
            hidden: JsonObject = orjson.loads(data)
            return hidden
        case _:
            return None


def _call(call: ToolCall, quirks: Quirks) -> JsonObject:
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": _encoded_id(call.id, quirks), "type": "function", "function": function}


def _result(result: ToolResult, limit: int | None, quirks: Quirks) -> JsonObject:
    text = plain_text(clip_content(result.content, limit))
    return {"role": "tool", "tool_call_id": _encoded_id(result.call_id, quirks), "content": text or NO_OUTPUT}


def _encoded_id(call_id: str, quirks: Quirks) -> str:
    """The call's id, or a stable one in the form that the server requires."""
    if quirks.id_chars is None or (len(call_id) == quirks.id_chars and call_id.isascii() and call_id.isalnum()):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[: quirks.id_chars]


def _content(parts: Sequence[Part]) -> str | list[JsonObject]:
    """Plain text if there are no images, because not every compatible server accepts a list."""
    if not any(isinstance(part, Image) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, Text) and part.text.strip())
    return encode_content(parts, _text, _image)


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _image(image: Image) -> JsonObject:
    url = url_of(image)
    if not url:
        return _text(OMITTED)
    source: JsonObject = {"url": url}
    if image.detail:
        source["detail"] = image.detail
    return {"type": "image_url", "image_url": source}


def _tool(spec: ToolSpec, *, strict: bool) -> JsonObject:
    function: JsonObject = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    if strict and (schema := strict_schema(spec.parameters, OPENAI)) is not None:
        function |= {"parameters": schema, "strict": True}
    return {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice) -> str | JsonObject:
    match choice:
        case AnyTool():
            return "required"
        case OneTool(name=name):
            return {"type": "function", "function": {"name": name}}
        case _:
            return choice


def _settings(request: ModelRequest, quirks: Quirks) -> JsonObject:
    """The fields for settings that are set and that the model accepts."""
    settings, model = request.settings, unprefixed(request.model)
    fields: dict[str, Any] = {
        "temperature": None if is_reasoning(model) else settings.temperature,
        quirks.max_tokens_field: settings.max_output_tokens,
        "reasoning_effort": settings.reasoning_effort if quirks.takes_effort.match(model) else None,
        "response_format": _response_format(settings.response_format, quirks),
        "verbosity": settings.verbosity,
        "prompt_cache_key": request.key if quirks.caches_by_key else None,
    }
    if request.tools and not O_SERIES.match(model):
        fields["parallel_tool_calls"] = settings.parallel_tool_calls
    return {field: value for field, value in fields.items() if value is not None}


def _response_format(wanted: Any, quirks: Quirks) -> Any:
    if wanted and wanted.get("type") == "json_schema" and not quirks.takes_json_schema:
        return {"type": "json_object"}
    return wanted
