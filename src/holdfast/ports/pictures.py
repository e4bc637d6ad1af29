"""The promise of whoever fetches images that users name by URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.core.messages import Image


class Pictures(Protocol):
    async def fetched(self, urls: Sequence[str]) -> Mapping[str, Image]:
        """The images at these addresses, within bounds of number, bytes and time for all of them together.

        Raises `Invalid` for one that cannot be had, or is none."""
        ...
