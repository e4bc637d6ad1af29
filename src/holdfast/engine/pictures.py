"""A request's images that are named by URL, put into it before it is accepted or previewed."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.pictures import answer_with, draft_with, urls_in
from holdfast.core.request import RunRequest
from holdfast.ports.pictures import Pictures


async def with_pictures(request: RunRequest, pictures: Pictures | None) -> RunRequest:
    """The same request with its images in it. Raises `Invalid` for one that cannot be had."""
    urls = urls_in(request.messages, request.answers or ())
    if pictures is None or not urls:
        return request
    fetched = await pictures.fetched(urls)
    answers = request.answers
    return replace(
        request,
        messages=tuple(draft_with(draft, fetched) for draft in request.messages),
        answers=None if answers is None else tuple(answer_with(answer, fetched) for answer in answers),
    )
