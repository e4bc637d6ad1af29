"""Images that messages only name by URL: which there are, and the messages with what was fetched in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from holdfast.core.messages import Answer, Draft, Image, Part, ToolResult, UserBody

P = TypeVar("P", bound=Part)


def urls_in(drafts: Iterable[Draft], answers: Iterable[Answer] = ()) -> list[str]:
    """The addresses of all images that are not here yet, each once."""
    said = [draft.body.parts for draft in drafts if isinstance(draft.body, UserBody)]
    results = [answer.content for answer in answers if isinstance(answer, ToolResult)]
    given = [content for content in results if not isinstance(content, str)]
    images = (part for parts in (*said, *given) for part in parts if isinstance(part, Image))
    return list(dict.fromkeys(image.url for image in images if image.url and _is_away(image)))


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
    if not isinstance(part, Image) or part.url is None or not _is_away(part):
        return part
    found = fetched[part.url]
    return replace(part, data=found.data, media_type=found.media_type)


def _is_away(image: Image) -> bool:
    return image.data is None and image.url is not None and not image.url.startswith("data:")
