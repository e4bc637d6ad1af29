"""A `ModelRequest` on the Anthropic Messages wire: plain functions over plain values.

Quirks of the wire: turns alternate, so neighbours of one role are merged, and tool results stand first in their
user turn; a block of text may not be blank; thinking goes back only with its signature; the input of an old call
must be an object; `max_tokens` is required. The cache markers stand on the system prompt (which covers the
tools before it) and on the last block. Settings are in `anthropic_settings`.
https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

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
)
from holdfast.core.model import ModelRequest
from holdfast.providers.anthropic_settings import settings_of
from holdfast.providers.assembly import Assembly, split_system
from holdfast.providers.encoding import Wire, arguments_object, shown
from holdfast.providers.images import OMITTED, inline
from holdfast.providers.turns import AssistantTurn, ResultsTurn, SpokenTurn, Turn

ORIGIN = "anthropic"  # whose seals these are; None is from before they were marked, when only this wire had any
CACHE_MARKER = {"type": "ephemeral"}
BEGINNING = "[The conversation begins here.]"  # the wire wants a user's turn first, even where there was none
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")


def request_body(request: ModelRequest, assembly: Assembly) -> Wire:
    system, conversation = split_system(request.messages)
    messages = _from_the_beginning(assembly.of(conversation, limit=request.tool_return_char_limit))
    messages[-1] = _marked(messages[-1])
    body: Wire = {"model": request.model, "messages": messages, "stream": True, **settings_of(request)}
    if system:
        blocks = [_text(text) for text in system]
        blocks[-1]["cache_control"] = CACHE_MARKER
        body["system"] = blocks
    body.update(request.settings.extra_body)
    return body


def append(sent: list[Wire], turn: Turn, limit: int | None) -> None:
    """One turn onto the wire, for `Assembly`; onto the turn before if that was of the same role."""
    role = "assistant" if isinstance(turn, AssistantTurn) else "user"
    blocks = _blocks(turn, limit)
    if not blocks:
        return
    if sent and sent[-1]["role"] == role:
        sent[-1] = {"role": role, "content": [*sent[-1]["content"], *blocks]}
    else:
        sent.append({"role": role, "content": blocks})


def _blocks(turn: Turn, limit: int | None) -> list[Wire]:
    match turn:
        case SpokenTurn(body):
            return _seen(body.parts if isinstance(body, UserBody) else (Text(body.text),))
        case AssistantTurn(parts, calls):
            return [*_said(parts), *map(_tool_use, calls)]
        case ResultsTurn(results):
            return [_tool_result(result, limit) for result in results]


def _from_the_beginning(messages: list[Wire]) -> list[Wire]:
    if messages and messages[0]["role"] == "user":
        return messages
    return [{"role": "user", "content": [_text(BEGINNING)]}, *messages]


def _marked(message: Wire) -> Wire:
    """A copy with the cache marker on its last block, which cannot be thinking."""
    *others, last = message["content"]
    if last["type"] in ("thinking", "redacted_thinking"):
        return message
    return {**message, "content": [*others, {**last, "cache_control": CACHE_MARKER}]}


def _seen(parts: Iterable[Part]) -> list[Wire]:
    return shown(parts, _text, _image)


def _text(text: str) -> Wire:
    return {"type": "text", "text": text}


def _said(parts: Iterable[Part]) -> list[Wire]:
    """What the model said itself; its thinking goes back as it came or not at all. Another vendor's seal stays here."""
    blocks: list[Wire] = []
    for part in parts:
        match part:
            case Text(text=text) if text.strip():
                blocks.append(_text(text))
            case Reasoning(text=text, signature=str(signature), origin="anthropic" | None) if signature:
                blocks.append({"type": "thinking", "thinking": text, "signature": signature})
            case HiddenReasoning(data=data, origin="anthropic" | None) if data:
                blocks.append({"type": "redacted_thinking", "data": data})
            case _:
                pass
    return blocks


def _tool_use(call: ToolCall) -> Wire:
    block = {"type": "tool_use", "id": _wire_id(call.id), "name": call.name}
    return {**block, "input": arguments_object(call.arguments)}


def _tool_result(result: ToolResult, limit: int | None) -> Wire:
    content = clip_content(result.content, limit)
    block: Wire = {"type": "tool_result", "tool_use_id": _wire_id(result.call_id)}
    seen: str | Sequence[Wire] = content if isinstance(content, str) else _seen(content)
    if seen:
        block["content"] = seen
    if result.status == "error":
        block["is_error"] = True
    return block


def _wire_id(call_id: str) -> str:
    """Other vendors' ids may hold characters that this wire refuses."""
    return _NOT_IN_IDS.sub("_", call_id)


def _image(image: Image) -> Wire:
    if held := inline(image):
        return {"type": "image", "source": {"type": "base64", "media_type": held.media_type, "data": held.data}}
    if image.url:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    return _text(OMITTED)
