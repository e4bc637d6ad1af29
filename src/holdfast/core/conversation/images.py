"""Recognises supported image formats, lists the image URLs of messages, and replaces them with the fetched images.

An image that a vendor refuses is worse than none: it stays in the context, and every later turn fails. So the format of
an image from a URL or a tool is determined by its first bytes; the declared type is often wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from holdfast.core.conversation.messages import Answer, Draft, Image, Part, ToolResult, UserBody

P = TypeVar("P", bound=Part)

KINDS = "PNG, JPEG, GIF or WebP"
_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def kind_of_image(body: bytes) -> str | None:
    """The media type, or None if this is not an image in a format that models accept."""
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC.items() if body.startswith(magic)), None)


def urls_in(drafts: Iterable[Draft], answers: Iterable[Answer] = ()) -> list[str]:
    """The URLs of all images that have to be fetched, each once."""
    said = [draft.body.parts for draft in drafts if isinstance(draft.body, UserBody)]
    results = [answer.content for answer in answers if isinstance(answer, ToolResult)]
    given = [content for content in results if not isinstance(content, str)]
    images = (part for parts in (*said, *given) for part in parts if isinstance(part, Image))
    return list(dict.fromkeys(image.url for image in images if image.url and _needs_fetch(image)))


def draft_with(draft: Draft, fetched: Mapping[str, Image]) -> Draft:
    if not isinstance(draft.body, UserBody):
        return draft
    return replace(draft, body=UserBody(_parts_with(draft.body.parts, fetched)))


def answer_with(answer: Answer, fetched: Mapping[str, Image]) -> Answer:
    if not isinstance(answer, ToolResult) or isinstance(answer.content, str):
        return answer
    return replace(answer, content=_parts_with(answer.content, fetched))


def _parts_with(parts: tuple[P, ...], fetched: Mapping[str, Image]) -> tuple[P, ...]:
    return tuple(_part_with(part, fetched) for part in parts)


def _part_with(part: P, fetched: Mapping[str, Image]) -> P:
    if not isinstance(part, Image) or part.url is None or not _needs_fetch(part):
        return part
    found = fetched[part.url]
    return replace(part, data=found.data, media_type=found.media_type)


def _needs_fetch(image: Image) -> bool:
    return image.data is None and image.url is not None and not image.url.startswith("data:")
