"""Fetches images that users name by URL, through the guarded client. Implements `ports.image_fetcher.ImageFetcher`.

An image is fetched before the message with it is accepted, and stored with the message. So every vendor gets the same
bytes (some cannot fetch, and none should fetch an address that we refuse), every later step sends exactly what the
first one did, and a bad URL is an error of the request, not a failed run.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence

from holdfast.core.conversation.images import KINDS, kind_of_image
from holdfast.core.conversation.messages import Image
from holdfast.core.errors import Invalid
from holdfast.ports.outbound import AddressRefused, Outbound, OutboundRequest, Unreachable

MAX_IMAGES = 20
MAX_IMAGE_BYTES = 10 * 1024 * 1024
MAX_BYTES = 32 * 1024 * 1024  # of all images of a request
IMAGE_SECONDS = 10.0
SECONDS = 30.0  # for all images of a request


class GuardedImageFetcher:
    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound

    async def fetched(self, urls: Sequence[str]) -> Mapping[str, Image]:
        if len(urls) > MAX_IMAGES:
            raise Invalid(f"A request can have {MAX_IMAGES} images by URL; this one has {len(urls)}.")
        fetched: dict[str, Image] = {}
        left = MAX_BYTES
        try:
            async with asyncio.timeout(SECONDS):
                for url in urls:
                    body = await self._fetch(url, min(MAX_IMAGE_BYTES, left))
                    left -= len(body)
                    fetched[url] = Image(url=url, data=base64.b64encode(body).decode(), media_type=_kind(url, body))
        except TimeoutError as late:
            raise Invalid(f"The images of this request could not be fetched within {SECONDS:g} s.") from late
        return fetched

    async def _fetch(self, url: str, max_bytes: int) -> bytes:
        request = OutboundRequest(url=url, timeout_seconds=IMAGE_SECONDS, max_bytes=max_bytes)
        try:
            answer = await self._outbound.send(request)
        except (AddressRefused, Unreachable) as refused:
            raise Invalid(f"The image at {url} was not fetched: {refused}") from refused
        if answer.status != 200:
            raise Invalid(f"The image at {url} was not fetched: its server answered {answer.status}.")
        if not answer.whole:
            raise Invalid(
                f"The image at {url} was not fetched: it is too large. One image may have {MAX_IMAGE_BYTES} bytes, all "
                f"of a request {MAX_BYTES}."
            )
        return answer.body


def _kind(url: str, body: bytes) -> str:
    kind = kind_of_image(body)
    if kind is None:
        raise Invalid(f"The content at {url} is no image that models take: {KINDS}.")
    return kind
