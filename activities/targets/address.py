"""Which addresses a target may have.

Default deny: an address is public only if it lies in a range from which the IANA special-purpose
registries (RFC 6890, and the registries for IPv4 and IPv6) take nothing away. ``ipaddress`` alone
is no guard: on Python 3.11 ``is_global`` is true for ``::127.0.0.1``, ``2002:a9fe:a9fe::``,
``64:ff9b::a9fe:a9fe`` and ``fec0::1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_SPECIAL_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT, and cloud metadata
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link local, cloud metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # IETF protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays, deprecated
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)

_UNICAST_V6 = IPv6Network("2000::/3")
"""All that is assigned for global unicast; loopback, unspecified, unique and link local,
site-local, multicast, IPv4-compatible and local-use NAT64 (64:ff9b:1::/48) lie outside."""

_SPECIAL_V6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # IETF protocol assignments: Teredo, benchmarking, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: carries an IPv4 address
        "3ffe::/16",  # 6bone, returned
        "3fff::/20",  # documentation
    )
)

_NAT64 = IPv6Network("64:ff9b::/96")
"""RFC 6052: the last 32 bits are the IPv4 address that is reached."""


def effective(address: Address) -> Address:
    """The address that a packet reaches: IPv4-mapped and NAT64 addresses become the IPv4 inside."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def is_public(address: Address) -> bool:
    """Whether an address is reached over the public internet, and nothing but that."""
    reached = effective(address)
    if isinstance(reached, IPv4Address):
        return not any(reached in network for network in _SPECIAL_V4)
    return reached in _UNICAST_V6 and not any(reached in network for network in _SPECIAL_V6)


def is_allowed(address: Address, allow_networks: Sequence[Network]) -> bool:
    """Public, or in a network that the installation allows."""
    reached = effective(address)
    return is_public(address) or any(
        candidate in network
        for network in allow_networks
        for candidate in {address, reached}
        if candidate.version == network.version
    )


def parse_address(text: str) -> Address | None:
    """An address in one of the usual spellings, without brackets or a zone; None if it is none."""
    if "%" in text:
        return None
    try:
        return ip_address(text)
    except ValueError:
        return None


def parse_resolved(text: str) -> Address:
    """An address as a resolver or a socket gives it; a zone (``fe80::1%eth0``) is left out."""
    return ip_address(text.partition("%")[0])
