"""URLs that are refused at creation, with a message that mends them, and those that are taken."""

from __future__ import annotations

import re
import string
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.targets.url import check_url, parse_url
from workflows.domain.errors import RuleError

INVALID, BLOCKED = "url_invalid", "address_not_allowed"


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("http://[::ffff:127.0.0.1]/", BLOCKED, "not allowed"),
        ("http://[::ffff:7f00:1]/", BLOCKED, "not allowed"),
        ("http://[::ffff:169.254.169.254]/latest/meta-data/", BLOCKED, "not allowed"),
        ("http://[0:0:0:0:0:ffff:a9fe:a9fe]/", BLOCKED, "not allowed"),
        ("http://[::127.0.0.1]/", BLOCKED, "not allowed"),
        ("http://127.0.0.1/", BLOCKED, "not allowed"),
        ("http://10.0.0.5:8080/x", BLOCKED, "not allowed"),
        ("http://localhost/", BLOCKED, "not allowed"),
        ("http://LocalHost.:80/", BLOCKED, "not allowed"),
        ("http://a.localhost/", BLOCKED, "not allowed"),
        ("http://2130706433/", BLOCKED, "127.0.0.1"),
        ("http://0x7f.1/", BLOCKED, "127.0.0.1"),
        ("http://0x7f000001/", BLOCKED, "127.0.0.1"),
        ("http://0177.0.0.1/", BLOCKED, "127.0.0.1"),
        ("http://127.1/", BLOCKED, "127.0.0.1"),
        ("http://127.0.0.1./", BLOCKED, "127.0.0.1"),
        ("http://0/", BLOCKED, "0.0.0.0"),
        ("http://134744072/", INVALID, "8.8.8.8"),
        ("http://１２７.0.0.1/", BLOCKED, "not allowed"),
        ("http://①②⑦.0.0.1/", BLOCKED, "not allowed"),
        ("http://127。0。0。1/", BLOCKED, "not allowed"),
        ("http://1.2.3/", INVALID, "1.2.0.3"),
        ("http://256.1.1.1/", INVALID, "0 to 255"),
        ("http://example.0x/", INVALID, "IPv4"),
        ("http://[fe80::1%25eth0]/", INVALID, "zones"),
        ("http://[fe80::1%eth0]/", INVALID, "zones"),
        ("http://[::1", INVALID, "cannot be read"),
        ("http://::1/", INVALID, "cannot be read"),
        ("http://[127.0.0.1]/", INVALID, "IPv6"),
        ("ftp://example.com/", INVALID, "http or https"),
        ("file:///etc/passwd", INVALID, "http or https"),
        ("javascript://example.com/", INVALID, "http or https"),
        ("example.com/x", INVALID, "https://"),
        ("//example.com/x", INVALID, "https://"),
        ("http:example.com", INVALID, "https://"),
        ("http:/example.com", INVALID, "https://"),
        ("http:///x", INVALID, "no host"),
        ("http://:80/", INVALID, "no host"),
        ("http://user:pw@example.com/", INVALID, "authorization header"),
        ("http://user@example.com/", INVALID, "authorization header"),
        ("http://@example.com/", INVALID, "authorization header"),
        ("http://good.example\\@evil.example/", INVALID, "backslash"),
        ("http://example.com:0/", INVALID, "1 to 65535"),
        ("http://example.com:65536/", INVALID, "1 to 65535"),
        ("http://example.com:8_0/", INVALID, "cannot be read"),
        ("http://example.com:+80/", INVALID, "cannot be read"),
        ("http://example.com:٣/", INVALID, "cannot be read"),
        ("http://exa mple.com/", INVALID, "percent-encode"),
        ("http://example.com/a b", INVALID, "percent-encode"),
        (" http://example.com/", INVALID, "percent-encode"),
        ("http://example.com/\n", INVALID, "percent-encode"),
        ("http://exam\tple.com/", INVALID, "percent-encode"),
        ("http://example.com/\x00", INVALID, "percent-encode"),
        ("http://example.com/\x7f", INVALID, "percent-encode"),
        ("http://example.com/\u2028", INVALID, "percent-encode"),
        ("http://example.com/\ud800", INVALID, "percent-encode"),
        ("http://exa%6dple.com/", INVALID, "host name"),
        ("http://a..b/", INVALID, "host name"),
        ("http://-a.example/", INVALID, "host name"),
        ("http://a,b/", INVALID, "host name"),
        ("http://" + "a" * 64 + ".example/", INVALID, "host name"),
        ("http://" + "a." * 130 + "example/", INVALID, "host name"),
        ("http://example.com/" + "a" * 4096, INVALID, "4096"),
        ("", INVALID, "https://"),
    ],
)
def test_refused(url: str, code: str, said: str) -> None:
    with pytest.raises(RuleError, match=re.escape(said)) as caught:
        check_url(url, [])
    assert (caught.value.code, caught.value.pointer) == (code, "/target/url")


@pytest.mark.parametrize(
    ("url", "host", "port", "requested"),
    [
        ("https://example.com", "example.com", 443, "/"),
        ("HTTPS://EXAMPLE.com:443/X", "example.com", 443, "/X"),
        ("http://example.com:8080?a=%41+b|c#f", "example.com", 8080, "/?a=%41+b|c"),
        ("http://example.com:/x", "example.com", 80, "/x"),
        ("http://a/../b//%7e", "a", 80, "/../b//%7e"),
        ("http://my_host.example./", "my_host.example.", 80, "/"),
        ("http://bücher.example/ä?q=ü%7e", "xn--bcher-kva.example", 80, "/%C3%A4?q=%C3%BC%7e"),
        ("http://8.8.8.8/", "8.8.8.8", 80, "/"),
        ("https://[2606:4700::1111]:8443/x", "2606:4700::1111", 8443, "/x"),
        ("https://1.example/", "1.example", 443, "/"),
        ("https://example.com/@user:x\\y", "example.com", 443, "/@user:x\\y"),
    ],
)
def test_taken(url: str, host: str, port: int, requested: str) -> None:
    check_url(url, [])
    target = parse_url(url)
    assert (target.host, target.port, target.url.raw_path_qs) == (host, port, requested)
    assert (target.url.raw_host, target.url.port) == (host, port)


def test_allowed_networks_open_loopback() -> None:
    for url in ("http://127.0.0.1:9000/", "http://localhost/", "http://[::ffff:127.0.0.1]/"):
        check_url(url, [ip_network("127.0.0.0/8")])


@given(st.text(alphabet=string.printable + "éß。１①\u2028\ud800", max_size=40), st.booleans())
def test_no_text_is_anything_but_taken_or_refused(text: str, absolute: bool) -> None:
    """And what is taken is requested from the host that was checked."""
    url = f"http://{text}" if absolute else text
    try:
        check_url(url, [])
    except RuleError:
        return
    target = parse_url(url)
    assert target.url.raw_host == target.host
    assert target.url.user is None
    assert target.host.isascii()
