"""Default deny: tables of what is public and what is not."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.targets.address import effective, is_allowed, is_public

FORBIDDEN = [
    "0.0.0.0", "0.1.2.3", "10.0.0.5", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254",
    "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192",
    "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9",
    "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:169.254.169.254",
    "0:0:0:0:0:ffff:a9fe:a9fe", "::ffff:0:127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1",
    "64:ff9b:1::808:808", "64:ff9b:1::1", "100::1", "2001:0:4136:e378::", "2001::1", "2001:2::1",
    "2001:10::1", "2001:20::1", "2001:db8::1", "2002:a9fe:a9fe::", "2002:808:808::1", "3ffe::1", "3fff::1",
    "5f00::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fe80::1", "fe81::1", "febf::1", "fec0::1", "feff::1",
    "ff00::1", "ff02::1", "4000::1", "8000::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "169.253.0.1", "172.15.0.1",
    "172.32.0.1", "192.0.1.1", "198.17.0.1", "198.20.0.1", "223.255.255.255", "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8", "2606:4700:4700::1111", "2a00:1450::1", "2001:200::1", "2001:4860:4860::8888",
]  # fmt: skip


@pytest.mark.parametrize("text", FORBIDDEN)
def test_not_public(text: str) -> None:
    assert not is_public(ip_address(text))
    assert not is_allowed(ip_address(text), [ip_network("192.0.3.0/24")])


@pytest.mark.parametrize("text", PUBLIC)
def test_public(text: str) -> None:
    assert is_public(ip_address(text))
    assert is_allowed(ip_address(text), [])


@pytest.mark.parametrize(
    ("text", "networks", "allowed"),
    [
        ("10.1.2.3", ["10.0.0.0/8"], True),
        ("10.1.2.3", ["10.2.0.0/16"], False),
        ("::ffff:10.1.2.3", ["10.0.0.0/8"], True),
        ("64:ff9b::10.1.2.3", ["10.0.0.0/8"], True),
        ("fd00::1", ["fd00::/8", "10.0.0.0/8"], True),
        ("::1", ["127.0.0.0/8"], False),
        ("127.0.0.1", ["::/0"], False),
    ],
)
def test_allowed_networks(text: str, networks: list[str], allowed: bool) -> None:
    assert is_allowed(ip_address(text), [ip_network(network) for network in networks]) is allowed


@given(st.ip_addresses())
def test_public_implies_that_the_standard_library_agrees(address: IPv4Address | IPv6Address) -> None:
    """We are stricter than ``is_global``, and never laxer."""
    reached = effective(address)
    if is_public(address):
        assert reached.is_global
        assert not reached.is_multicast
        assert not reached.is_reserved
        assert not reached.is_link_local


@given(st.ip_addresses(v=4))
def test_an_embedded_address_is_judged_as_itself(address: IPv4Address) -> None:
    mapped = IPv6Address(int(IPv6Address("::ffff:0:0")) | int(address))
    nat64 = IPv6Address(int(IPv6Address("64:ff9b::")) | int(address))
    assert is_public(mapped) == is_public(nat64) == is_public(address)
