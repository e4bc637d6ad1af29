"""How we prove to a vendor who we are: headers for one request, made when it is sent.

Most vendors take a fixed header. Bedrock signs every request (`aws`), Vertex wants a token that is renewed each hour
(`google_token`); both are made from the same promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Credentials(Protocol):
    async def headers(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        """What goes with this request. Raises `ModelError` if nothing can be made."""
        ...


class FixedHeaders:
    """The same headers every time."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    async def headers(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        return self._headers


def bearer(api_key: str | None) -> FixedHeaders:
    return FixedHeaders({"authorization": f"Bearer {api_key}"} if api_key else {})


def header(name: str, api_key: str | None) -> FixedHeaders:
    return FixedHeaders({name: api_key} if api_key else {})
