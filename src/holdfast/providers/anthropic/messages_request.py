"""Encodes a `ModelRequest` as the body of an Anthropic Messages request.

Rules of this API: roles alternate, so neighbours of one role are merged, and tool results come first in their user
turn; a text block must not be blank; thinking is sent back only with its signature; the input of an earlier call must
be an object; `max_tokens` is required. Cache markers are on the system prompt (which covers the tools before it) and on
the last block. Everything but the conversation is in `request_settings`.
https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from holdfast.core.conversation.messages import (
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
from holdfast.core.tools.return_clipping import clip_content
from holdfast.providers.anthropic.request_settings import settings_of
from holdfast.providers.encoding.content import JsonObject, arguments_object, encode_content
from holdfast.providers.encoding.history_cache import HistoryCache, split_system
from holdfast.providers.encoding.inline_images import OMITTED, inline
from holdfast.providers.encoding.turns import AssistantTurn, ResultsTurn, SpokenTurn, Turn

ORIGIN = "anthropic"  # origin of signatures; None on old messages, from when only this API had signatures
CACHE_MARKER = {"type": "ephemeral"}
BEGINNING = "[The conversation begins here.]"  # the API requires a user's turn first, even if the conversation has none
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")


def request_body(request: ModelRequest, history_cache: HistoryCache) -> JsonObject:
    system, conversation = split_system(request.messages)
    messages = _user_first(history_cache.encode(conversation, limit=request.tool_return_char_limit))
    messages[-1] = _with_cache_marker(messages[-1])
    body: JsonObject = {"model": request.model, "messages": messages, "stream": True, **settings_of(request)}
    if system:
        blocks = [_text(text) for text in system]
        blocks[-1]["cache_control"] = CACHE_MARKER
        body["system"] = blocks
    body.update(request.settings.extra_body)
    return body


def append(encoded: list[JsonObject], turn: Turn, limit: int | None) -> None:
    """Encode one turn, for `HistoryCache`; it is merged into the previous message if that has the same role."""
    role = "assistant" if isinstance(turn, AssistantTurn) else "user"
    blocks = _blocks(turn, limit)
    if not blocks:
        return
    if encoded and encoded[-1]["role"] == role:
        encoded[-1] = {"role": role, "content": [*encoded[-1]["content"], *blocks]}
    else:
        encoded.append({"role": role, "content": blocks})


def _blocks(turn: Turn, limit: int | None) -> list[JsonObject]:
    match turn:
        case SpokenTurn(body):
            return _content(body.parts if isinstance(body, UserBody) else (Text(body.text),))
        case AssistantTurn(parts, calls):
            return [*_assistant_blocks(parts), *map(_tool_use, calls)]
        case ResultsTurn(results):
            return [_tool_result(result, limit) for result in results]


def _user_first(messages: list[JsonObject]) -> list[JsonObject]:
    if messages and messages[0]["role"] == "user":
        return messages
    return [{"role": "user", "content": [_text(BEGINNING)]}, *messages]


def _with_cache_marker(message: JsonObject) -> JsonObject:
    """A copy with the cache marker on its last block; thinking blocks cannot have one."""
    *others, last = message["content"]
    if last["type"] in ("thinking", "redacted_thinking"):
        return message
    return {**message, "content": [*others, {**last, "cache_control": CACHE_MARKER}]}


def _content(parts: Iterable[Part]) -> list[JsonObject]:
    return encode_content(parts, _text, _image)


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _assistant_blocks(parts: Iterable[Part]) -> list[JsonObject]:
    """The model's own reply. Thinking is sent back unchanged or not at all, and never another vendor's."""
    blocks: list[JsonObject] = []
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


def _tool_use(call: ToolCall) -> JsonObject:
    block = {"type": "tool_use", "id": _encoded_id(call.id), "name": call.name}
    return {**block, "input": arguments_object(call.arguments)}


def _tool_result(result: ToolResult, limit: int | None) -> JsonObject:
    content = clip_content(result.content, limit)
    block: JsonObject = {"type": "tool_result", "tool_use_id": _encoded_id(result.call_id)}
    shown: str | Sequence[JsonObject] = content if isinstance(content, str) else _content(content)
    if shown:
        block["content"] = shown
    if result.status == "error":
        block["is_error"] = True
    return block


def _encoded_id(call_id: str) -> str:
    """The call's id in the characters that this API accepts; other vendors' ids may have more."""
    return _NOT_IN_IDS.sub("_", call_id)


def _image(image: Image) -> JsonObject:
    if held := inline(image):
        return {"type": "image", "source": {"type": "base64", "media_type": held.media_type, "data": held.data}}
    if image.url:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    return _text(OMITTED)
