"""Which IP addresses are public, in every notation."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest

from holdfast.outbound.public_addresses import NON_PUBLIC_V4, is_public

# The registries of special-purpose addresses, and besides them multicast, site-local and what is not assigned.
SPECIAL_V6 = (
    *("::/128", "::1/128", "::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001:2::/48"),
    *("2001:10::/28", "2001:20::/28", "2001:30::/28", "2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7"),
    *("fe80::/10", "fec0::/10", "ff00::/8", "200::/7", "4000::/3"),
)


def edges(network: IPv4Network | IPv6Network) -> list[str]:
    middle = network[network.num_addresses // 2]
    return [str(network[0]), str(middle), str(network[-1])]


def embedded(address: IPv4Address) -> list[str]:
    """An IPv4 address in every form of IPv6 that embeds it."""
    number = int(address)
    client = ~number & 0xFFFFFFFF
    google = int(IPv4Address("8.8.8.8"))
    forms = (
        0xFFFF << 32 | number,
        0x64_FF9B << 96 | number,
        0x2002 << 112 | number << 80 | 1,
        0x2001_0000 << 96 | number << 64 | ~google & 0xFFFFFFFF,
        0x2001_0000 << 96 | google << 64 | client,
    )
    return [str(IPv6Address(form)) for form in forms]


@pytest.mark.parametrize("network", NON_PUBLIC_V4, ids=str)
def test_special_networks_are_not_public_even_when_embedded(network: IPv4Network) -> None:
    for address in edges(network):
        assert not is_public(address), address
        for form in embedded(IPv4Address(address)):
            assert not is_public(form), form


@pytest.mark.parametrize("network", SPECIAL_V6)
def test_special_networks_of_ipv6_are_not_public(network: str) -> None:
    for address in edges(IPv6Network(network)):
        assert not is_public(address), address


def test_the_neighbours_of_special_networks_are_public() -> None:
    nearby = [IPv4Address(int(network[0]) - 1) for network in NON_PUBLIC_V4 if int(network[0])]
    nearby += [IPv4Address(int(network[-1]) + 1) for network in NON_PUBLIC_V4 if int(network[-1]) < 0xFFFFFFFF]
    for address in nearby:
        if not any(address in network for network in NON_PUBLIC_V4):
            assert is_public(str(address)), address
    assert is_public("2001:200::1")
    assert is_public("2a00::1")


@pytest.mark.parametrize("address", embedded(IPv4Address("8.8.4.4")))
def test_a_public_address_is_public_even_when_embedded(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "169.254.170.2",
        "192.0.2.1",
        "198.18.0.1",
        "192.0.0.192",
        "168.63.129.16",
        "192.88.99.1",
        "fec0::1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",
        "2002:c0a8:101::1",
        "2001:0:7f00:1::",
        "",
        "not an address",
        "0x7f.1",
    ],
)
def test_everything_else_is_not_public(address: str) -> None:
    assert not is_public(address)
