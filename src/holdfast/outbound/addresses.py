"""Which addresses are outside: pure rules about one IP address, however it is written.

An address that embeds another (IPv4 in IPv6 in its several forms) counts as inside if either is. Anything that the
registries do not call globally reachable is inside: loopback, private, link-local with the clouds' metadata service,
shared, documentation, multicast, unspecified and reserved ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

# Prefixes whose last 32 bits are an IPv4 address that a gateway connects to: NAT64 (RFC 6052, RFC 8215), and the
# long-deprecated IPv4-compatible form.
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"), IPv6Network("::/96"))


def is_outside(text: str) -> bool:
    """Whether this is an address of the public internet. What is no address at all is not."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return all(_is_public(one) for one in _meant_by(address))


def _meant_by(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    if isinstance(address, IPv4Address):
        yield address
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
        return
    yield address
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if any(address in network for network in _NAT64):
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    scoped = isinstance(address, IPv6Address) and address.scope_id is not None
    special = address.is_multicast or address.is_reserved or address.is_unspecified or address.is_link_local
    return address.is_global and not special and not scoped
