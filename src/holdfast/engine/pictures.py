"""Images that a request gives by URL are fetched before it is accepted, and kept with the message from then on.

So every vendor gets the same bytes in its own way (some cannot fetch, and none should be sent where we would not go),
every later step sends exactly what the first one did, and a URL that leads nowhere is the sender's error, not a failed
run. Fetching goes through the guarded client, within bounds of bytes and time for one image and for all.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace

from holdfast.core.errors import Invalid
from holdfast.core.messages import Answer, Draft, Image, Part, ToolResult, UserBody
from holdfast.core.request import RunRequest
from holdfast.ports.outbound import AddressRefused, Outbound, OutboundRequest, Unreachable

MAX_IMAGES = 20
MAX_IMAGE_BYTES = 10 * 1024 * 1024
MAX_BYTES = 32 * 1024 * 1024  # of all images of a request
IMAGE_SECONDS = 10.0
SECONDS = 30.0  # for all images of a request

_MAGIC = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


async def with_pictures(request: RunRequest, outbound: Outbound | None) -> RunRequest:
    """The same request with its images in it. Raises `Invalid` for one that cannot be had."""
    wanted = [image.url for image in _images(request) if _is_away(image) and image.url]
    if outbound is None or not wanted:
        return request
    if len(wanted) > MAX_IMAGES:
        raise Invalid(f"A request can have {MAX_IMAGES} images by URL; this one has {len(wanted)}.")
    fetched = await _fetch_all(list(dict.fromkeys(wanted)), outbound)
    answers = request.answers
    return replace(
        request,
        messages=tuple(_hung(draft, fetched) for draft in request.messages),
        answers=None if answers is None else tuple(_hung_answer(answer, fetched) for answer in answers),
    )


async def _fetch_all(urls: list[str], outbound: Outbound) -> dict[str, Image]:
    fetched: dict[str, Image] = {}
    left = MAX_BYTES
    try:
        async with asyncio.timeout(SECONDS):
            for url in urls:
                body = await _fetch(url, outbound, min(MAX_IMAGE_BYTES, left))
                left -= len(body)
                fetched[url] = Image(url=url, data=base64.b64encode(body).decode(), media_type=_kind(url, body))
    except TimeoutError as late:
        raise Invalid(f"The images of this request could not be fetched within {SECONDS:g} s.") from late
    return fetched


async def _fetch(url: str, outbound: Outbound, max_bytes: int) -> bytes:
    asked = OutboundRequest(url=url, timeout_seconds=IMAGE_SECONDS, max_bytes=max_bytes)
    try:
        answer = await outbound.send(asked)
    except (AddressRefused, Unreachable) as refused:
        raise Invalid(f"The image at {url} was not fetched: {refused}") from refused
    if answer.status != 200:
        raise Invalid(f"The image at {url} was not fetched: its server answered {answer.status}.")
    if not answer.whole:
        raise Invalid(
            f"The image at {url} was not fetched: it is too large. One image may have {MAX_IMAGE_BYTES} bytes, all of "
            f"a request {MAX_BYTES}."
        )
    return answer.body


def _kind(url: str, body: bytes) -> str:
    """By its first bytes: what servers say of their files is often wrong."""
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return "image/webp"
    kind = next((kind for magic, kind in _MAGIC.items() if body.startswith(magic)), None)
    if kind is None:
        raise Invalid(f"What is at {url} is no image that models take: PNG, JPEG, GIF or WebP.")
    return kind


def _is_away(image: Image) -> bool:
    return image.data is None and image.url is not None and not image.url.startswith("data:")


def _images(request: RunRequest) -> list[Image]:
    said = [draft.body.parts for draft in request.messages if isinstance(draft.body, UserBody)]
    results = [answer.content for answer in request.answers or () if isinstance(answer, ToolResult)]
    given = [content for content in results if not isinstance(content, str)]
    return [part for parts in (*said, *given) for part in parts if isinstance(part, Image)]


def _hung(draft: Draft, fetched: dict[str, Image]) -> Draft:
    if not isinstance(draft.body, UserBody):
        return draft
    return replace(draft, body=UserBody(tuple(_here(part, fetched) for part in draft.body.parts)))


def _hung_answer(answer: Answer, fetched: dict[str, Image]) -> Answer:
    if not isinstance(answer, ToolResult) or isinstance(answer.content, str):
        return answer
    content = tuple(_here_image(part, fetched) if isinstance(part, Image) else part for part in answer.content)
    return replace(answer, content=content)


def _here(part: Part, fetched: dict[str, Image]) -> Part:
    return _here_image(part, fetched) if isinstance(part, Image) else part


def _here_image(image: Image, fetched: dict[str, Image]) -> Image:
    if not _is_away(image) or image.url is None:
        return image
    return replace(fetched[image.url], detail=image.detail)
