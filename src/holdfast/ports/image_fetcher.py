"""The interface of the image fetcher, which downloads images that users give by URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.core.conversation.messages import Image


class ImageFetcher(Protocol):
    async def fetched(self, urls: Sequence[str]) -> Mapping[str, Image]:
        """The images at these URLs. Their number, total size and total time are limited.

        Raises `Invalid` if one cannot be fetched or is not an image."""
        ...
