"""A `ModelRequest` on the OpenAI Responses wire: plain functions over plain values.

The conversation is a flat list of items: messages, reasoning, calls and their outputs. Nothing is stored at the vendor
(`store: false`), so reasoning comes encrypted and goes back that way, and only with what followed it: an item of
reasoning that nothing follows is refused. Tools are strict unless they say that they are not.
https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

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
)
from holdfast.core.model import AnyTool, ModelRequest, ModelSettings, OneTool, ToolChoice, ToolSpec
from holdfast.providers.assembly import Assembly, split_system
from holdfast.providers.encoding import Wire, shown
from holdfast.providers.images import OMITTED, url_of
from holdfast.providers.quirks import O_SERIES, bare, is_reasoning
from holdfast.providers.strict import OPENAI, strict_schema
from holdfast.providers.turns import AssistantTurn, ResultsTurn, SpokenTurn, Turn, in_order

ORIGIN = "openai-responses"
NO_OUTPUT = "[No output]"


def request_body(request: ModelRequest, assembly: Assembly, *, summaries: bool = True) -> Wire:
    """The whole body. `summaries` asks for reasoning in words; OpenAI gives it only to verified organisations."""
    system, conversation = split_system(request.messages)
    body: Wire = {
        "model": request.model,
        "input": assembly.of(conversation, limit=request.tool_return_char_limit),
        "stream": True,
        "store": False,
    }
    if system:
        body["instructions"] = "\n\n".join(system)
    if request.tools:
        body["tools"] = [_tool(spec, strict=spec.strict or request.settings.strict) for spec in request.tools]
        body["tool_choice"] = _tool_choice(request.tool_choice)
        if not O_SERIES.match(bare(request.model)):
            body["parallel_tool_calls"] = request.settings.parallel_tool_calls
    body.update(_knobs(request, summaries=summaries))
    body.update(request.settings.extra_body)
    return body


def append(sent: list[Wire], turn: Turn, limit: int | None) -> None:
    """One turn onto the wire, for `Assembly`."""
    match turn:
        case SpokenTurn(body):
            role = "system" if isinstance(body, SystemBody) else "user"
            if content := _seen(body.parts if isinstance(body, UserBody) else (Text(body.text),)):
                sent.append({"role": role, "content": content})
        case AssistantTurn():
            sent.extend(_followed(map(_item, in_order(turn))))
        case ResultsTurn(results):
            sent.extend(_output(result, limit) for result in results)


def _followed(items: Iterable[Wire | None]) -> Iterator[Wire]:
    """Everything but reasoning that nothing follows."""
    held: list[Wire] = []
    for item in items:
        if item is None:
            continue
        held.append(item)
        if item.get("type") != "reasoning":
            yield from held
            held = []


def _item(said: Part | ToolCall) -> Wire | None:
    match said:
        case Text(text=text) if text.strip():
            return {"role": "assistant", "content": [{"type": "output_text", "text": text}]}
        case Reasoning(text=text, signature=str(sealed), origin="openai-responses"):
            summary = [{"type": "summary_text", "text": text}] if text else []
            return _reasoning(sealed, said.id, summary)
        case HiddenReasoning(data=sealed, origin="openai-responses"):
            return _reasoning(sealed, said.id, [])
        case ToolCall(id=call_id, name=name, arguments=arguments):
            return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments or "{}"}
        case _:
            return None


def _reasoning(sealed: str, item_id: str | None, summary: Sequence[Wire]) -> Wire:
    item: Wire = {"type": "reasoning", "summary": summary, "encrypted_content": sealed}
    return {**item, "id": item_id} if item_id else item


def _output(result: ToolResult, limit: int | None) -> Wire:
    content = clip_content(result.content, limit)
    output: str | list[Wire] = content if isinstance(content, str) else _seen(content)
    return {"type": "function_call_output", "call_id": result.call_id, "output": output or NO_OUTPUT}


def _seen(parts: Iterable[Part]) -> list[Wire]:
    return shown(parts, _text, _image)


def _text(text: str) -> Wire:
    return {"type": "input_text", "text": text}


def _image(image: Image) -> Wire:
    url = url_of(image)
    if not url:
        return _text(OMITTED)
    return {"type": "input_image", "image_url": url, "detail": image.detail or "auto"}


def _tool(spec: ToolSpec, *, strict: bool) -> Wire:
    schema = strict_schema(spec.parameters, OPENAI) if strict else None
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters if schema is None else schema,
        "strict": schema is not None,
    }


def _tool_choice(choice: ToolChoice) -> str | Wire:
    match choice:
        case AnyTool():
            return "required"
        case OneTool(name=name):
            return {"type": "function", "name": name}
        case _:
            return choice


def _knobs(request: ModelRequest, *, summaries: bool) -> Wire:
    """The settings that are set and that the model takes."""
    settings = request.settings
    knobs: dict[str, Any] = {"max_output_tokens": settings.max_output_tokens, "prompt_cache_key": request.key}
    if is_reasoning(request.model):
        knobs["include"] = ["reasoning.encrypted_content"]
        reasoning = {"effort": settings.reasoning_effort, "summary": "auto" if summaries else None}
        knobs["reasoning"] = {knob: value for knob, value in reasoning.items() if value} or None
    else:
        knobs["temperature"] = settings.temperature
    knobs["text"] = _answer(settings) or None
    return {knob: value for knob, value in knobs.items() if value is not None}


def _answer(settings: ModelSettings) -> Wire:
    """How the answer is written: its format, flat on this wire, and how wordy it is."""
    text: Wire = {}
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
