"""Encodes a `ModelRequest` as the body of a Gemini request.

Roles alternate, so neighbours of one role are merged; the results of all calls come first in one user turn, and images
that tools returned follow as parts of their own. Thought signatures are sent back on the same part they came with.
Gemini 3 rejects a call in its history without one, so a call of another vendor gets the placeholder that Google
documents for this. Older models cannot answer by schema while they have tools, so the schema is then left out.
https://ai.google.dev/api/generate-content https://ai.google.dev/gemini-api/docs/thought-signatures
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from holdfast.core.conversation.messages import (
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
from holdfast.core.tools.return_clipping import clip_content
from holdfast.providers.encoding.content import JsonObject, arguments_object, encode_content
from holdfast.providers.encoding.history_cache import Append, HistoryCache, split_system
from holdfast.providers.encoding.inline_images import OMITTED, inline
from holdfast.providers.encoding.turns import AssistantTurn, ResultsTurn, SpokenTurn, Turn, in_order
from holdfast.providers.openai.quirks import unprefixed

ORIGIN = "gemini"
BEGINNING = "[The conversation begins here.]"  # the API requires a user's turn first, even if the conversation has none
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


def request_body(request: ModelRequest, history_cache: HistoryCache) -> JsonObject:
    """The whole body; the model's name is in the URL."""
    system, conversation = split_system(request.messages)
    contents = _user_first(history_cache.encode(conversation, limit=request.tool_return_char_limit))
    body: JsonObject = {"contents": list(map(_with_signature, contents)) if _takes_level(request.model) else contents}
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
    """The encoder of one turn, for `HistoryCache`. `ids` says whether calls have ids (not on Vertex)."""
    return partial(_append, ids)


def _append(ids: bool, encoded: list[JsonObject], turn: Turn, limit: int | None) -> None:
    role = "model" if isinstance(turn, AssistantTurn) else "user"
    parts = _parts(turn, limit, ids)
    if not parts:
        return
    if encoded and encoded[-1]["role"] == role:
        encoded[-1] = {"role": role, "parts": [*encoded[-1]["parts"], *parts]}
    else:
        encoded.append({"role": role, "parts": parts})


def _parts(turn: Turn, limit: int | None, ids: bool) -> list[JsonObject]:
    match turn:
        case SpokenTurn(body):
            return _content(body.parts if isinstance(body, UserBody) else (Text(body.text),))
        case AssistantTurn():
            return [part for item in in_order(turn) if (part := _assistant_part(item, ids)) is not None]
        case ResultsTurn(results):
            responses = [_response(result, limit, ids) for result in results]
            return [*responses, *(part for result in results for part in _images(result))]


def _assistant_part(item: Part | ToolCall, ids: bool) -> JsonObject | None:
    """A part or call of the model's own reply; another vendor's reasoning and signatures are left out."""
    match item:
        case Text(text=text) if text.strip():
            part: JsonObject = {"text": text}
            return part | {"thoughtSignature": item.signature} if item.signature and item.origin == ORIGIN else part
        case Reasoning(text=text, signature=str(signature), origin="gemini"):
            return {"text": text, "thought": True, "thoughtSignature": signature}
        case HiddenReasoning(data=signature, origin="gemini"):
            return {"text": "", "thoughtSignature": signature}
        case ToolCall(name=name, arguments=arguments):
            call: JsonObject = {"name": name, "args": arguments_object(arguments)}
            part = {"functionCall": {"id": item.id, **call} if ids else call}
            return part | {"thoughtSignature": item.signature} if item.signature and item.origin == ORIGIN else part
        case _:
            return None


def _response(result: ToolResult, limit: int | None, ids: bool) -> JsonObject:
    text = plain_text(clip_content(result.content, limit))
    outcome = {"error" if result.status == "error" else "output": text}
    response: JsonObject = {"name": result.name or "", "response": outcome}
    return {"functionResponse": {"id": result.call_id, **response} if ids else response}


def _images(result: ToolResult) -> list[JsonObject]:
    """The images of a tool return, after it and labelled with the tool's name."""
    images = [part for part in result.content if isinstance(part, Image)] if not isinstance(result.content, str) else []
    return [{"text": f"Images returned by {result.name}:"}, *_content(images)] if images else []


def _content(parts: Iterable[Part]) -> list[JsonObject]:
    return encode_content(parts, _text, _image)


def _text(text: str) -> JsonObject:
    return {"text": text}


def _image(image: Image) -> JsonObject:
    """Only images that we have the bytes of: this API accepts no foreign URLs."""
    held = inline(image)
    return {"inlineData": {"mimeType": held.media_type, "data": held.data}} if held else _text(OMITTED)


def _user_first(contents: list[JsonObject]) -> list[JsonObject]:
    if contents and contents[0]["role"] == "user":
        return contents
    return [{"role": "user", "parts": [{"text": BEGINNING}]}, *contents]


def _with_signature(content: JsonObject) -> JsonObject:
    """A copy in which the first call has a signature: the placeholder, if another vendor made the call."""
    first = next((index for index, part in enumerate(content["parts"]) if "functionCall" in part), None)
    if first is None or "thoughtSignature" in content["parts"][first]:
        return content
    parts = list(content["parts"])
    parts[first] = {**parts[first], "thoughtSignature": UNSIGNED}
    return {**content, "parts": parts}


def _tool_choice(choice: ToolChoice) -> JsonObject:
    match choice:
        case AnyTool():
            return {"mode": "ANY"}
        case OneTool(name=name):
            return {"mode": "ANY", "allowedFunctionNames": [name]}
        case _:
            return {"mode": "NONE" if choice == "none" else "AUTO"}


def _config(request: ModelRequest) -> JsonObject:
    settings = request.settings
    config: dict[str, Any] = {
        "temperature": settings.temperature,
        "maxOutputTokens": settings.max_output_tokens,
        "thinkingConfig": _thinking(request.model, settings),
    }
    wanted = settings.response_format or {}
    if wanted.get("type") in ("json_schema", "json_object") and (not request.tools or _takes_level(request.model)):
        config["responseMimeType"] = "application/json"
        named = wanted.get("json_schema") or {}
        config["responseJsonSchema"] = named.get("schema") or named or None
    return {knob: value for knob, value in config.items() if value is not None}


def _thinking(model: str, settings: ModelSettings) -> JsonObject | None:
    """Thoughts are requested from every model that has them. Gemini 2.5 takes a budget, Gemini 3 and later a level."""
    takes_level = _takes_level(model)
    if not takes_level and not _THINKS_BY_BUDGET.match(unprefixed(model)):
        return None
    effort = "none" if settings.reasoning_enabled is False else settings.reasoning_effort
    budget = settings.reasoning_budget_tokens
    if budget is None and effort in _BUDGETS and not takes_level:
        budget = _BUDGETS[effort]
    thinking: JsonObject = {"includeThoughts": budget != 0}
    if budget is not None:
        thinking["thinkingBudget"] = budget
    elif takes_level and effort in _LEVELS:
        thinking["thinkingLevel"] = _LEVELS[effort]
    return thinking


def _takes_level(model: str) -> bool:
    return _THINKS_BY_LEVEL.match(unprefixed(model)) is not None
