"""Estimates the number of tokens of texts, messages and tools without a tokenizer, fast enough for every step.

The estimate is linear in the kinds of characters of a text. Its weights were fitted to the mean of eight real
vocabularies (OpenAI's two, Llama 3, Qwen 3, DeepSeek, Mistral, Gemma 3, Kimi) over prose, markdown, code, JSON, numbers
and sixteen languages; docs/decisions/0020 has the errors, and a test measures them again. The usual rule, characters
divided by four, is wrong by a factor of two to four for JSON, numbers and every script but the Latin one.

The size of a conversation is the vendor's count of the last prompt plus this estimate of the messages since then, so
errors do not accumulate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from json import dumps

from holdfast.core.conversation.messages import (
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Body,
    HiddenReasoning,
    Image,
    Part,
    Reasoning,
    SummaryBody,
    SystemBody,
    Text,
    ToolReturnsBody,
    UserBody,
)
from holdfast.core.model import ToolSpec

PER_MESSAGE = 4  # roles and separators
PER_CALL = 8
PER_IMAGE = 1_000  # vendors count 85 to 1,600, by the image's size, which is not known here
Count = Callable[[str], int]  # tokens of a text

HIDDEN_CHARS_PER_TOKEN = 8  # encrypted reasoning is longer than the text that is billed


def _all_but(*spans: tuple[int, int]) -> bytes:
    kept = {byte for first, last in spans for byte in range(first, last + 1)}
    return bytes(byte for byte in range(256) if byte not in kept)


# For each kind of character: the bytes to delete from the UTF-8 text so that only this kind is left, and its weight.
_ASCII = (
    (_all_but((97, 122)), 0.20),  # small letters
    (_all_but((65, 90)), 0.57),  # capitals
    (_all_but((48, 57)), 0.85),  # digits: some vocabularies take three at a time, some one
    (_all_but((32, 32)), 0.08),
    (_all_but((9, 13)), 0.72),  # tabs and line ends
    (_all_but((33, 47), (58, 64), (91, 96), (123, 126)), 0.59),
)
_NON_ASCII = (  # by the first byte of a character
    (_all_but((0xC2, 0xCB)), 1.79),  # Latin letters with marks
    (_all_but((0xCC, 0xDF)), 0.48),  # Greek, Cyrillic, Hebrew, Arabic
    (_all_but((0xE0, 0xE0)), 0.66),  # Indic scripts, Thai
    (_all_but((0xE1, 0xE3)), 0.62),  # kana, typographic signs, others
    (_all_but((0xE4, 0xEF)), 1.06),  # Chinese characters, Hangul
    (_all_but((0xF0, 0xF4)), 2.50),  # emoji and rare characters
)


def of_text(text: str) -> int:
    data = text.encode("utf-8", "replace")
    kinds = _ASCII if len(data) == len(text) else _ASCII + _NON_ASCII
    return int(sum(len(data.translate(None, others)) * weight for others, weight in kinds) + 0.5)


def of_bodies(bodies: Iterable[Body], return_chars: int | None = None, count: Count = of_text) -> int:
    """The tokens of messages as they are sent to the model. Tool returns are clipped to `return_chars`, so only that
    much is counted. `count` replaces the estimate of a text, for instance by a tokenizer."""
    return sum(of_body(body, return_chars, count) for body in bodies)


def of_body(body: Body, return_chars: int | None = None, count: Count = of_text) -> int:
    match body:
        case SystemBody(text=text) | SummaryBody(text=text):
            return PER_MESSAGE + count(text)
        case UserBody(parts=parts):
            return PER_MESSAGE + _of_parts(parts, count)
        case AssistantBody(parts=parts, calls=calls) | ApprovalRequestBody(parts=parts, calls=calls):
            called = sum(PER_CALL + count(call.name) + count(call.arguments) for call in calls)
            return PER_MESSAGE + _of_parts(parts, count) + called
        case ToolReturnsBody(results=results):
            return sum(PER_CALL + _of_content(result.content, return_chars, count) for result in results)
        case ApprovalResponseBody():
            return 0  # never sent to the model: the tool returns contain the outcome


def of_tools(specs: Iterable[ToolSpec]) -> int:
    return sum(PER_CALL + of_text(tool_text(spec)) for spec in specs)


def tool_text(spec: ToolSpec) -> str:
    return f"{spec.name}\n{spec.description}\n{dumps(spec.parameters, ensure_ascii=False)}"


def _of_content(content: str | tuple[Text | Image, ...], limit: int | None, count: Count) -> int:
    if isinstance(content, str):
        return count(content if limit is None else content[:limit])
    weight = 0
    for part in content:
        if limit is not None and isinstance(part, Text):
            weight += count(part.text[:limit])
            limit = max(0, limit - len(part.text))
        else:
            weight += _of_parts((part,), count)
    return weight


def _of_parts(parts: Iterable[Part], count: Count) -> int:
    weight = 0
    for part in parts:
        match part:
            case Text(text=text) | Reasoning(text=text):
                weight += count(text)
            case Image():
                weight += PER_IMAGE
            case HiddenReasoning(data=data):
                weight += len(data) // HIDDEN_CHARS_PER_TOKEN
    return weight
