"""Resolves host names and refuses those with an address that is not public, for aiohttp and for `ports.outbound`.

aiohttp connects to exactly the addresses that were checked here; there is no second lookup that could return another
address (DNS rebinding). If one of a name's addresses is not public, the whole name is refused. Numbers written as a
name (`0x7f.1`, `2130706433`) are resolved by the system like any name, so the address they mean is checked.
"""

from __future__ import annotations

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from holdfast.outbound.name_lookups import NameLookups
from holdfast.outbound.public_addresses import is_public
from holdfast.ports.outbound import AddressRefused, Unreachable

HOW_TO_ALLOW = "Set HOLDFAST_ALLOW_PRIVATE_URLS=true to allow addresses inside your network."


def check_address(text: str, named: str) -> None:
    """Raises `AddressRefused` if this address, which `named` resolved to, is not public."""
    if not is_public(text):
        shown = named if named == text else f"{named} ({text})"
        raise AddressRefused(f"{shown} is not a public address, so it is not called. {HOW_TO_ALLOW}")


class GuardedResolver(AbstractResolver):
    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._lookups = NameLookups()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._lookups.getaddrinfo(host, port, family)
        results: list[ResolveResult] = []
        for kind, _, proto, _, socket_address in found:
            address = str(socket_address[0])
            if not self._allow_private:
                check_address(address, host)
            results.append(
                {
                    "hostname": host,
                    "host": address,
                    "port": port,
                    "family": kind,
                    "proto": proto,
                    "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                }
            )
        if not results:
            raise OSError(f"{host} has no address")
        return results

    async def close(self) -> None:
        """Nothing to close."""


class GuardedAddresses:
    """Implements `ports.outbound.AddressBook` by the same rules; `host` may also be an IP address."""

    def __init__(self, *, allow_private: bool) -> None:
        self._resolver = GuardedResolver(allow_private=allow_private)

    async def addresses(self, host: str, port: int) -> list[str]:
        try:
            return [found["host"] for found in await self._resolver.resolve(host, port)]
        except (OSError, UnicodeError) as unknown:
            raise Unreachable(f"{host} could not be found: {unknown}") from unknown
