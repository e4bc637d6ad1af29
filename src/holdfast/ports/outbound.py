"""The interface of the guarded HTTP client for URLs that users supply and that are not trusted.

An implementation never connects to an internal address (loopback, private networks, cloud metadata) unless the operator
allows it, also not through a redirect or a host name that resolves there. It limits the response's size and duration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from holdfast.core.errors import AskedWrongly, TryLater


class AddressRefused(AskedWrongly):
    """The URL leads to an address that is not allowed; a retry does not help."""


class Unreachable(TryLater):
    """The host did not respond, or not in time."""


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
class OutboundResponse:
    """A response. `whole` is false if the body was longer than `max_bytes` and the rest was not read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    whole: bool = True


class Outbound(Protocol):
    async def send(self, request: OutboundRequest) -> OutboundResponse:
        """Send a request. Raises `AddressRefused` or `Unreachable`; an HTTP error status does not raise."""
        ...

    async def close(self) -> None: ...


class AddressBook(Protocol):
    """Resolves host names to allowed addresses, for callers that connect with a library of their own."""

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """The allowed addresses of this host. Connect to one of them without another DNS lookup.

        Raises `AddressRefused` or `Unreachable`."""
        ...
