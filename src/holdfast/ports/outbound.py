"""The promise of the one way out: HTTP to addresses that users give us, which we do not trust.

Whoever implements it never lets a request reach an address inside (loopback, private networks, cloud metadata) unless
the operator allows that, also not by a redirect or by a name that resolves there. It bounds what it reads and how long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from holdfast.core.errors import AskedWrongly, TryLater


class AddressRefused(AskedWrongly):
    """The URL leads where we do not go; trying again leads there again."""


class Unreachable(TryLater):
    """Nobody answered, or not in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundRequest:
    url: str
    method: Literal["GET", "POST"] = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout_seconds: float = 15.0
    max_bytes: int = 1_000_000
    max_redirects: int = 3


@dataclass(frozen=True, slots=True)
class OutboundAnswer:
    """`whole` is false if the body was longer than asked for and the rest was not read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    whole: bool = True


class Outbound(Protocol):
    async def send(self, request: OutboundRequest) -> OutboundAnswer:
        """Raises `AddressRefused` or `Unreachable`; any status is an answer."""
        ...

    async def close(self) -> None: ...


class AddressBook(Protocol):
    """For whoever has to make the connection itself, with a library that knows nothing of our rules."""

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """Where the name leads, checked: connect to one of these and look nothing up again.

        Raises `AddressRefused` or `Unreachable`."""
        ...
