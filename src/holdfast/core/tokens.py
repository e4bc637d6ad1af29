"""About how many tokens a text is, without anybody's tokenizer: for the hot path, where only new messages are weighed.

The estimate is linear in the kinds of characters a text holds. Its weights were fitted to the mean of eight real
vocabularies (OpenAI's two, Llama 3, Qwen 3, DeepSeek, Mistral, Gemma 3, Kimi) over prose, markdown, code, JSON, numbers
and sixteen languages; docs/decisions/0020 has the errors, and a test measures them again. Characters divided by four,
the usual rule, is off by two to four for JSON, numbers and every script but the Latin one.

A conversation's size is the vendor's own count of the last prompt plus this for what came after, so errors do not add
up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from json import dumps

from holdfast.core.messages import (
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
PER_IMAGE = 1_000  # vendors count from 85 to 1,600 by size; the size is not known here
Count = Callable[[str], int]  # tokens of a text

HIDDEN_CHARS_PER_TOKEN = 8  # encrypted reasoning is billed by what it says, not by its length


def _all_but(*spans: tuple[int, int]) -> bytes:
    kept = {byte for first, last in spans for byte in range(first, last + 1)}
    return bytes(byte for byte in range(256) if byte not in kept)


# What to delete from the UTF-8 bytes so that one kind of character is left, and what each of them weighs.
_ASCII = (
    (_all_but((97, 122)), 0.20),  # small letters
    (_all_but((65, 90)), 0.57),  # capitals
    (_all_but((48, 57)), 0.85),  # digits: some vocabularies take three at a time, some one
    (_all_but((32, 32)), 0.08),
    (_all_but((9, 13)), 0.72),  # tabs and line ends
    (_all_but((33, 47), (58, 64), (91, 96), (123, 126)), 0.59),
)
_BEYOND = (  # by the first byte of a character
    (_all_but((0xC2, 0xCB)), 1.79),  # Latin letters with marks
    (_all_but((0xCC, 0xDF)), 0.48),  # Greek, Cyrillic, Hebrew, Arabic
    (_all_but((0xE0, 0xE0)), 0.66),  # Indic scripts, Thai
    (_all_but((0xE1, 0xE3)), 0.62),  # kana, typographic signs, others
    (_all_but((0xE4, 0xEF)), 1.06),  # Chinese characters, Hangul
    (_all_but((0xF0, 0xF4)), 2.50),  # emoji and rare characters
)


def of_text(text: str) -> int:
    data = text.encode("utf-8", "replace")
    kinds = _ASCII if len(data) == len(text) else _ASCII + _BEYOND
    return int(sum(len(data.translate(None, others)) * weight for others, weight in kinds) + 0.5)


def of_bodies(bodies: Iterable[Body], return_chars: int | None = None, count: Count = of_text) -> int:
    """Messages as they are sent. Tool returns longer than `return_chars` are cut on their way, so they weigh no more.
    With a `count` of one's own the texts are counted by it."""
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
            return 0  # never sent: the returns say what came of it


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
