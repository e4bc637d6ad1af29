"""A `ModelRequest` on the Gemini wire: plain functions over plain values.

Turns alternate, so neighbours of one role are merged; the results of all calls stand first in one user's turn, and
images that tools returned stand beside them as parts of their own. Thought signatures go back on the very part they
came with. Gemini 3 refuses a call in its history without one, so a call from elsewhere bears the word that the vendor
gives out for this. Older models cannot answer by schema while they have tools, and are then not asked to.
https://ai.google.dev/api/generate-content https://ai.google.dev/gemini-api/docs/thought-signatures
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from holdfast.core.clipping import clip_content
from holdfast.core.messages import (
    HiddenReasoning,
    Image,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    UserBody,
    plain_text,
)
from holdfast.core.model import AnyTool, ModelRequest, ModelSettings, OneTool, ToolChoice
from holdfast.providers.assembly import Append, Assembly, split_system
from holdfast.providers.encoding import Wire, arguments_object, shown
from holdfast.providers.images import OMITTED, inline
from holdfast.providers.quirks import bare
from holdfast.providers.turns import AssistantTurn, ResultsTurn, SpokenTurn, Turn, in_order

ORIGIN = "gemini"
BEGINNING = "[The conversation begins here.]"  # the wire wants a user's turn first, even where there was none
UNSIGNED = "skip_thought_signature_validator"
_BUDGETS = {"none": 0, "minimal": 512, "low": 2048, "medium": 8192, "high": 24576, "xhigh": 32768, "max": 32768}
_LEVELS = {
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "high",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_THINKS_BY_BUDGET = re.compile(r"gemini-2\.5")
_THINKS_BY_LEVEL = re.compile(r"gemini-([3-9]|\d\d)")


def request_body(request: ModelRequest, assembly: Assembly) -> Wire:
    """The whole body; the model is named in the URL."""
    system, conversation = split_system(request.messages)
    contents = _from_the_beginning(assembly.of(conversation, limit=request.tool_return_char_limit))
    body: Wire = {"contents": list(map(_signed, contents)) if _by_level(request.model) else contents}
    if system:
        body["systemInstruction"] = {"parts": [{"text": text} for text in system]}
    if request.tools:
        declared = [
            {"name": spec.name, "description": spec.description, "parametersJsonSchema": spec.parameters}
            for spec in request.tools
        ]
        body["tools"] = [{"functionDeclarations": declared}]
        body["toolConfig"] = {"functionCallingConfig": _tool_choice(request.tool_choice)}
    if config := _config(request):
        body["generationConfig"] = config
    for field, value in request.settings.extra_body.items():
        ours = body.get(field)
        body[field] = {**ours, **value} if isinstance(ours, dict) and isinstance(value, dict) else value
    return body


def append_for(*, ids: bool) -> Append:
    """Puts one turn onto the wire, for `Assembly`. `ids` says whether calls are told apart by id (not on Vertex)."""
    return partial(_append, ids)


def _append(ids: bool, sent: list[Wire], turn: Turn, limit: int | None) -> None:
    role = "model" if isinstance(turn, AssistantTurn) else "user"
    parts = _parts(turn, limit, ids)
    if not parts:
        return
    if sent and sent[-1]["role"] == role:
        sent[-1] = {"role": role, "parts": [*sent[-1]["parts"], *parts]}
    else:
        sent.append({"role": role, "parts": parts})


def _parts(turn: Turn, limit: int | None, ids: bool) -> list[Wire]:
    match turn:
        case SpokenTurn(body):
            return _seen(body.parts if isinstance(body, UserBody) else (Text(body.text),))
        case AssistantTurn():
            return [part for said in in_order(turn) if (part := _said(said, ids)) is not None]
        case ResultsTurn(results):
            responses = [_response(result, limit, ids) for result in results]
            return [*responses, *(part for result in results for part in _pictures(result))]


def _said(said: Part | ToolCall, ids: bool) -> Wire | None:
    """What the model said itself; another vendor's seal stays here."""
    match said:
        case Text(text=text) if text.strip():
            part: Wire = {"text": text}
            return part | {"thoughtSignature": said.signature} if said.signature and said.origin == ORIGIN else part
        case Reasoning(text=text, signature=str(signature), origin="gemini"):
            return {"text": text, "thought": True, "thoughtSignature": signature}
        case HiddenReasoning(data=signature, origin="gemini"):
            return {"text": "", "thoughtSignature": signature}
        case ToolCall(name=name, arguments=arguments):
            call: Wire = {"name": name, "args": arguments_object(arguments)}
            part = {"functionCall": {"id": said.id, **call} if ids else call}
            return part | {"thoughtSignature": said.signature} if said.signature and said.origin == ORIGIN else part
        case _:
            return None


def _response(result: ToolResult, limit: int | None, ids: bool) -> Wire:
    text = plain_text(clip_content(result.content, limit))
    outcome = {"error" if result.status == "error" else "output": text}
    response: Wire = {"name": result.name or "", "response": outcome}
    return {"functionResponse": {"id": result.call_id, **response} if ids else response}


def _pictures(result: ToolResult) -> list[Wire]:
    """The images of a return, beside it and under its tool's name."""
    images = [part for part in result.content if isinstance(part, Image)] if not isinstance(result.content, str) else []
    return [{"text": f"Images returned by {result.name}:"}, *_seen(images)] if images else []


def _seen(parts: Iterable[Part]) -> list[Wire]:
    return shown(parts, _text, _image)


def _text(text: str) -> Wire:
    return {"text": text}


def _image(image: Image) -> Wire:
    """Only what we hold: this wire takes no URLs of others."""
    held = inline(image)
    return {"inlineData": {"mimeType": held.media_type, "data": held.data}} if held else _text(OMITTED)


def _from_the_beginning(contents: list[Wire]) -> list[Wire]:
    if contents and contents[0]["role"] == "user":
        return contents
    return [{"role": "user", "parts": [{"text": BEGINNING}]}, *contents]


def _signed(content: Wire) -> Wire:
    """The first call of each reply must be signed; one that another vendor made says that it cannot be."""
    first = next((index for index, part in enumerate(content["parts"]) if "functionCall" in part), None)
    if first is None or "thoughtSignature" in content["parts"][first]:
        return content
    parts = list(content["parts"])
    parts[first] = {**parts[first], "thoughtSignature": UNSIGNED}
    return {**content, "parts": parts}


def _tool_choice(choice: ToolChoice) -> Wire:
    match choice:
        case AnyTool():
            return {"mode": "ANY"}
        case OneTool(name=name):
            return {"mode": "ANY", "allowedFunctionNames": [name]}
        case _:
            return {"mode": "NONE" if choice == "none" else "AUTO"}


def _config(request: ModelRequest) -> Wire:
    settings = request.settings
    config: dict[str, Any] = {
        "temperature": settings.temperature,
        "maxOutputTokens": settings.max_output_tokens,
        "thinkingConfig": _thinking(request.model, settings),
    }
    wanted = settings.response_format or {}
    if wanted.get("type") in ("json_schema", "json_object") and (not request.tools or _by_level(request.model)):
        config["responseMimeType"] = "application/json"
        named = wanted.get("json_schema") or {}
        config["responseJsonSchema"] = named.get("schema") or named or None
    return {knob: value for knob, value in config.items() if value is not None}


def _thinking(model: str, settings: ModelSettings) -> Wire | None:
    """Thoughts are shown wherever a model has them. Up to 2.5 they have a budget, from 3 on a level."""
    by_level = _by_level(model)
    if not by_level and not _THINKS_BY_BUDGET.match(bare(model)):
        return None
    effort = "none" if settings.reasoning_enabled is False else settings.reasoning_effort
    budget = settings.reasoning_budget_tokens
    if budget is None and effort in _BUDGETS and not by_level:
        budget = _BUDGETS[effort]
    thinking: Wire = {"includeThoughts": budget != 0}
    if budget is not None:
        thinking["thinkingBudget"] = budget
    elif by_level and effort in _LEVELS:
        thinking["thinkingLevel"] = _LEVELS[effort]
    return thinking


def _by_level(model: str) -> bool:
    return _THINKS_BY_LEVEL.match(bare(model)) is not None
