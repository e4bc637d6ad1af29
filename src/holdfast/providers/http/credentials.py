"""How a request is authenticated: the `Credentials` protocol, and fixed headers for vendors with a plain key.

Bedrock signs every request (`clouds.aws_signing`), and Vertex needs a token that is renewed each hour
(`clouds.google_token`); both implement the same protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Credentials(Protocol):
    async def headers(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        """The headers to send with this request. Raises `ModelError` if they cannot be made."""
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
