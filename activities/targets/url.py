"""A target's URL: the rules it obeys at creation, and again, being stored text, at each attempt."""

from __future__ import annotations

import re
import socket
import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote

from yarl import URL

from activities.targets.address import Address, Network, is_allowed, is_public, parse_address
from workflows.domain.errors import RuleError

POINTER = "/target/url"
MAX_LENGTH = 4096
"""Characters; after non-ASCII ones are percent-encoded the limit is three times as much."""

_SPLIT = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^\[\]:]*)(?::(?P<port>[0-9]*))?")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff]")


@dataclass(frozen=True, slots=True)
class TargetUrl:
    """A URL taken apart. ``url`` is what is requested: path and query as the job wrote them."""

    url: URL
    host: str
    """Lower case and ASCII; an IPv6 address without brackets."""
    port: int
    literal: Address | None
    """The address, where the host is one."""


class UrlError(RuleError):
    """A URL that cannot be requested; ``blocked`` tells a forbidden address from a malformed text."""

    def __init__(self, message: str, *, blocked: bool = False) -> None:
        super().__init__(message, code="address_not_allowed" if blocked else "url_invalid", pointer=POINTER)
        self.blocked = blocked


def check_url(url: str, allow_networks: Sequence[Network]) -> None:
    """Refuse what could never be delivered to. Names are not resolved: that is done at each attempt.

    Raises RuleError with the pointer ``/target/url``; its code is ``url_invalid`` or
    ``address_not_allowed``.
    """
    target = parse_url(url)
    if target.literal is not None:
        if not is_allowed(target.literal, allow_networks):
            raise UrlError(
                f"The address {target.literal} is not public, so it is not allowed as a target; "
                "use a public address, or have the installation allow its network.",
                blocked=True,
            )
    elif _is_localhost(target.host) and not is_allowed(IPv4Address("127.0.0.1"), allow_networks):
        raise UrlError(
            f"{target.host} is this machine itself, which is not allowed as a target; "
            "use a public host name, or have the installation allow 127.0.0.0/8.",
            blocked=True,
        )


@lru_cache(maxsize=4096)
def parse_url(text: str) -> TargetUrl:
    """Take a URL apart. Raises UrlError for anything a library might read in two ways."""
    if len(text) > MAX_LENGTH:
        raise UrlError(f"The URL has {len(text)} characters; at most {MAX_LENGTH} are allowed.")
    if found := _FORBIDDEN.search(text):
        raise UrlError(
            f"The URL has a blank or control character at position {found.start()}; percent-encode it (%20)."
        )
    split = _SPLIT.fullmatch(text)
    if split is None:
        raise UrlError("The URL is not absolute; write it as https://host/path.")
    scheme, authority, rest = split["scheme"].lower(), split["authority"], split["rest"]
    if scheme not in ("http", "https"):
        raise UrlError(f"The scheme {scheme} is not supported; use http or https.")
    if "\\" in authority:
        raise UrlError("The URL has a backslash before the path; use forward slashes.")
    if "@" in authority:
        raise UrlError("The URL has a user name or password; take it out and set an authorization header.")
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise UrlError(f"The URL's host or port cannot be read: {authority!r}.")
    literal, host = _host(parts["host"])
    port = _port(parts["port"], scheme)
    bracketed = f"[{host}]" if isinstance(literal, IPv6Address) else host
    default = 443 if scheme == "https" else 80
    suffix = "" if port == default else f":{port}"
    path = quote(rest, safe=string.punctuation)
    try:
        url = URL(f"{scheme}://{bracketed}{suffix}{path}", encoded=True)
    except ValueError as error:
        raise UrlError(f"The URL cannot be read: {error}.") from None
    return TargetUrl(url, host, port, literal)


def _port(text: str | None, scheme: str) -> int:
    if not text:
        return 443 if scheme == "https" else 80
    if len(text) > 5 or not 1 <= int(text) <= 65535:
        raise UrlError(f"The port {text[:12]} does not exist; use 1 to 65535.")
    return int(text)


def _host(text: str) -> tuple[Address | None, str]:
    """The address, if the host is one, and the host as it is requested."""
    if text.startswith("["):
        inner = text[1:-1]
        address = parse_address(inner)
        if not isinstance(address, IPv6Address):
            raise UrlError(f"{text} is not an IPv6 address; zones (%eth0) cannot be used.")
        return address, str(address)
    if not text:
        raise UrlError("The URL has no host; write it as https://host/path.")
    host = text.lower() if text.isascii() else _ascii(text)
    name = host.removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(host)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise UrlError(f"{text[:80]!r} is not a host name: labels of letters, digits and hyphens, with dots.")
    return None, host


def _ipv4(host: str) -> tuple[IPv4Address, str]:
    """A host whose last label is a number is an IPv4 address (WHATWG URL); only ``a.b.c.d`` is taken."""
    address = parse_address(host)
    if isinstance(address, IPv4Address):
        return address, host
    try:
        meant = IPv4Address(socket.inet_aton(host.removesuffix(".")))
    except (OSError, ValueError):
        raise UrlError(f"{host[:80]} is not an IPv4 address; write four numbers from 0 to 255.") from None
    raise UrlError(
        f"{host[:80]} is another spelling of {meant}; write that if you mean it.",
        blocked=not is_public(meant),
    )


def _ascii(text: str) -> str:
    """An internationalised name in its ASCII form (UTS 46)."""
    try:
        host = URL(f"http://{text}/").raw_host
    except ValueError:
        host = None
    if not host or not host.isascii():
        raise UrlError(f"{text[:80]!r} is not a host name.")
    return host.lower()


def _is_localhost(host: str) -> bool:
    """RFC 6761: ``localhost`` and all below it are the loopback address."""
    name = host.removesuffix(".")
    return name == "localhost" or name.endswith(".localhost")
