"""Decides whether an IP address is public: pure rules, for every notation of an address.

The networks are listed here, from IANA's registries of special-purpose addresses, because `is_global` of Python's
`ipaddress` differs between patch releases. IPv4 is public except for the networks listed; IPv6 is public only in
2000::/3, which is all that is assigned to the internet, except for the networks listed. For an IPv6 address that embeds
an IPv4 address, the IPv4 address decides, because a gateway connects to it.

https://www.iana.org/assignments/iana-ipv4-special-registry and https://www.iana.org/assignments/iana-ipv6-special-registry
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

NON_PUBLIC_V4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by carriers; Alibaba's metadata
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # Azure's host, reachable from every machine there
            "169.254.0.0/16",  # link-local; metadata of most clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments; Oracle's metadata at 192.0.0.192
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4, deprecated
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and the broadcast address
        ),
    )
)
PUBLIC_V6 = IPv6Network("2000::/3")
NON_PUBLIC_V6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments
            "2001:db8::/32",  # documentation
            "3fff::/20",  # documentation
        ),
    )
)
_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")


def is_public(text: str) -> bool:
    """Whether this is an address of the public internet; False for a text that is not an address."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return _is_public_v4(address)
    if address.scope_id is not None:
        return False
    if embedded := list(_embedded_ipv4(address)):
        return all(map(_is_public_v4, embedded))
    return address in PUBLIC_V6 and not any(address in network for network in NON_PUBLIC_V6)


def _is_public_v4(address: IPv4Address) -> bool:
    return not any(address in network for network in NON_PUBLIC_V4)


def _embedded_ipv4(address: IPv6Address) -> Iterator[IPv4Address]:
    """The IPv4 addresses embedded in this one: mapped, NAT64, 6to4 and Teredo."""
    number = int(address)
    if address in _MAPPED or address in _NAT64:
        yield IPv4Address(number & 0xFFFFFFFF)
    elif address in _SIX_TO_FOUR:
        yield IPv4Address(number >> 80 & 0xFFFFFFFF)
    elif address in _TEREDO:  # the server's address, and the client's with all bits inverted
        yield IPv4Address(number >> 64 & 0xFFFFFFFF)
        yield IPv4Address(~number & 0xFFFFFFFF)
