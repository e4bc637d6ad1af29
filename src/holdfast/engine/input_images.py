"""Fetches the images that a request names by URL and puts them into it, before it is accepted or previewed."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.conversation.images import answer_with, draft_with, urls_in
from holdfast.core.run_request import RunRequest
from holdfast.ports.image_fetcher import ImageFetcher


async def with_images(request: RunRequest, images: ImageFetcher | None) -> RunRequest:
    """The request with its images in it. Raises `Invalid` if an image cannot be fetched."""
    urls = urls_in(request.messages, request.answers or ())
    if images is None or not urls:
        return request
    fetched = await images.fetched(urls)
    answers = request.answers
    return replace(
        request,
        messages=tuple(draft_with(draft, fetched) for draft in request.messages),
        answers=None if answers is None else tuple(answer_with(answer, fetched) for answer in answers),
    )
