"""A `ModelRequest` on the Chat Completions wire: plain functions over plain values.

Quirks of the wire: tool returns are one `tool` message each and carry only text; reasoning is never sent back;
the reasoning models of OpenAI refuse a temperature and `parallel_tool_calls`; other servers know `max_tokens` but
not `max_completion_tokens`. https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from holdfast.core.messages import Image, Part, SystemBody, Text, ToolCall, ToolResult, UserBody, plain_text
from holdfast.core.model import AnyTool, ModelRequest, OneTool, ToolChoice, ToolSpec
from holdfast.providers.assembly import Assembly, split_system
from holdfast.providers.encoding import Wire, cut, strict_schema
from holdfast.providers.turns import AssistantTurn, ResultsTurn, SpokenTurn, Turn

NO_OUTPUT = "[No output]"
_O_SERIES = re.compile(r"o[134](-|$)")
_REASONING = re.compile(r"o[134](-|$)|gpt-5(?!.*-chat)")


def request_body(request: ModelRequest, assembly: Assembly, *, is_openai: bool) -> Wire:
    """The whole body. `is_openai` says that the server is OpenAI's own and not merely compatible."""
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
    body.update(_knobs(request, is_openai=is_openai))
    body.update(request.settings.extra_body)
    return body


def is_reasoning(model: str) -> bool:
    """Whether this is one of OpenAI's own reasoning models, also behind a proxy."""
    return _REASONING.match(model.rpartition("/")[2]) is not None


def append(sent: list[Wire], turn: Turn, limit: int | None) -> None:
    """One turn onto the wire, for `Assembly`."""
    match turn:
        case SpokenTurn(body):
            role = "system" if isinstance(body, SystemBody) else "user"
            if content := _content(body.parts if isinstance(body, UserBody) else (Text(body.text),)):
                sent.append({"role": role, "content": content})
        case AssistantTurn(parts, calls):
            message = _assistant(parts, calls)
            if len(message) > 1:
                sent.append(message)
        case ResultsTurn(results):
            sent.extend(_result(result, limit) for result in results)


def _assistant(parts: tuple[Part, ...], calls: Sequence[ToolCall]) -> Wire:
    message: Wire = {"role": "assistant"}
    if (text := plain_text(parts)).strip():
        message["content"] = text
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}
            for call in calls
        ]
    return message


def _result(result: ToolResult, limit: int | None) -> Wire:
    text = plain_text(cut(result.content, limit))
    return {"role": "tool", "tool_call_id": result.call_id, "content": text or NO_OUTPUT}


def _content(parts: Sequence[Part]) -> str | list[Wire]:
    """Plain text where it suffices, because not every compatible server takes a list."""
    if not any(isinstance(part, Image) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, Text) and part.text.strip())
    content: list[Wire] = []
    for part in parts:
        match part:
            case Text(text=text) if text.strip():
                content.append({"type": "text", "text": text})
            case Image():
                content.append(_image(part))
            case _:
                pass
    return content


def _image(image: Image) -> Wire:
    url = f"data:{image.media_type or 'image/png'};base64,{image.data}" if image.data else image.url
    if not url:
        return {"type": "text", "text": "[Image omitted]"}
    source: Wire = {"url": url}
    if image.detail:
        source["detail"] = image.detail
    return {"type": "image_url", "image_url": source}


def _tool(spec: ToolSpec, *, strict: bool) -> Wire:
    function: Wire = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    if strict and (schema := strict_schema(spec.parameters)) is not None:
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


def _knobs(request: ModelRequest, *, is_openai: bool) -> Wire:
    """The settings that are set and that the model takes."""
    settings = request.settings
    reasons = is_reasoning(request.model)
    knobs: dict[str, Any] = {
        "temperature": None if reasons else settings.temperature,
        "max_completion_tokens" if is_openai else "max_tokens": settings.max_output_tokens,
        "reasoning_effort": settings.reasoning_effort if reasons or not is_openai else None,
        "response_format": settings.response_format,
        "verbosity": settings.verbosity,
        "prompt_cache_key": request.key if is_openai else None,
    }
    if request.tools and not _O_SERIES.match(request.model.rpartition("/")[2]):
        knobs["parallel_tool_calls"] = settings.parallel_tool_calls
    return {knob: value for knob, value in knobs.items() if value is not None}
