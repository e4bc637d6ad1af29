"""A `ModelRequest` on the Chat Completions wire: plain functions over plain values.

Tool returns are one `tool` message each and carry only text; the reasoning models of OpenAI refuse a temperature and
`parallel_tool_calls`. Where servers differ is in `quirks`: the name of the limit, what they refuse, whether they want
their reasoning back. https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson

from holdfast.core.clipping import clip_content
from holdfast.core.messages import (
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
from holdfast.providers.assembly import Append, Assembly, split_system
from holdfast.providers.encoding import Wire, shown
from holdfast.providers.images import OMITTED, url_of
from holdfast.providers.quirks import O_SERIES, Quirks, bare, is_reasoning
from holdfast.providers.strict import OPENAI, strict_schema
from holdfast.providers.turns import AssistantTurn, ResultsTurn, SpokenTurn, Turn

NO_OUTPUT = "[No output]"
DETAILS = "reasoning_details"  # the origin of reasoning that came as OpenRouter's details


def request_body(request: ModelRequest, assembly: Assembly, quirks: Quirks) -> Wire:
    """The whole body. The assembly was made with `append_for` the same quirks."""
    system, conversation = split_system(request.messages)
    body: Wire = {
        "model": request.model,
        "messages": [
            *({"role": "system", "content": text} for text in system),
            *assembly.of(conversation, limit=request.tool_return_char_limit),
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(spec, strict=spec.strict or request.settings.strict) for spec in request.tools]
        body["tool_choice"] = _tool_choice(request.tool_choice)
    body.update(_knobs(request, quirks))
    body = {field: value for field, value in body.items() if field not in quirks.refuses}
    body.update(request.settings.extra_body)
    return body


def append_for(quirks: Quirks) -> Append:
    """Puts one turn onto the wire, for `Assembly`."""
    return partial(_append, quirks)


def _append(quirks: Quirks, sent: list[Wire], turn: Turn, limit: int | None) -> None:
    match turn:
        case SpokenTurn(body):
            role = "system" if isinstance(body, SystemBody) else "user"
            if content := _content(body.parts if isinstance(body, UserBody) else (Text(body.text),)):
                sent.append({"role": role, "content": content})
        case AssistantTurn(parts, calls):
            message = _assistant(parts, calls, quirks)
            if "content" in message or "tool_calls" in message:
                sent.append(message)
        case ResultsTurn(results):
            sent.extend(_result(result, limit, quirks) for result in results)


def _assistant(parts: tuple[Part, ...], calls: Sequence[ToolCall], quirks: Quirks) -> Wire:
    message: Wire = {"role": "assistant"}
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


def _detail(part: Part) -> Wire | None:
    """A piece of reasoning as it came; its seal holds everything of it but the words."""
    match part:
        case Reasoning(text=text, signature=str(seal), origin="reasoning_details"):
            detail: Wire = orjson.loads(seal)
            return {**detail, "summary" if detail.get("type") == "reasoning.summary" else "text": text}
        case HiddenReasoning(data=data, origin="reasoning_details"):
            hidden: Wire = orjson.loads(data)
            return hidden
        case _:
            return None


def _call(call: ToolCall, quirks: Quirks) -> Wire:
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": _wire_id(call.id, quirks), "type": "function", "function": function}


def _result(result: ToolResult, limit: int | None, quirks: Quirks) -> Wire:
    text = plain_text(clip_content(result.content, limit))
    return {"role": "tool", "tool_call_id": _wire_id(result.call_id, quirks), "content": text or NO_OUTPUT}


def _wire_id(call_id: str, quirks: Quirks) -> str:
    """The call's id, or a stable one in the form that the server wants."""
    if quirks.id_chars is None or (len(call_id) == quirks.id_chars and call_id.isascii() and call_id.isalnum()):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[: quirks.id_chars]


def _content(parts: Sequence[Part]) -> str | list[Wire]:
    """Plain text where it suffices, because not every compatible server takes a list."""
    if not any(isinstance(part, Image) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, Text) and part.text.strip())
    return shown(parts, _text, _image)


def _text(text: str) -> Wire:
    return {"type": "text", "text": text}


def _image(image: Image) -> Wire:
    url = url_of(image)
    if not url:
        return _text(OMITTED)
    source: Wire = {"url": url}
    if image.detail:
        source["detail"] = image.detail
    return {"type": "image_url", "image_url": source}


def _tool(spec: ToolSpec, *, strict: bool) -> Wire:
    function: Wire = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    if strict and (schema := strict_schema(spec.parameters, OPENAI)) is not None:
        function |= {"parameters": schema, "strict": True}
    return {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice) -> str | Wire:
    match choice:
        case AnyTool():
            return "required"
        case OneTool(name=name):
            return {"type": "function", "function": {"name": name}}
        case _:
            return choice


def _knobs(request: ModelRequest, quirks: Quirks) -> Wire:
    """The settings that are set and that the model takes."""
    settings, model = request.settings, bare(request.model)
    knobs: dict[str, Any] = {
        "temperature": None if is_reasoning(model) else settings.temperature,
        quirks.max_tokens_field: settings.max_output_tokens,
        "reasoning_effort": settings.reasoning_effort if quirks.takes_effort.match(model) else None,
        "response_format": _response_format(settings.response_format, quirks),
        "verbosity": settings.verbosity,
        "prompt_cache_key": request.key if quirks.caches_by_key else None,
    }
    if request.tools and not O_SERIES.match(model):
        knobs["parallel_tool_calls"] = settings.parallel_tool_calls
    return {knob: value for knob, value in knobs.items() if value is not None}


def _response_format(wanted: Any, quirks: Quirks) -> Any:
    if wanted and wanted.get("type") == "json_schema" and not quirks.takes_json_schema:
        return {"type": "json_object"}
    return wanted
