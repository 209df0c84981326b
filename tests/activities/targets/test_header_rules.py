"""Which headers a job may set."""

from __future__ import annotations

import pytest

from workflows.domain.errors import RuleError
from workflows.domain.headers import MAX_HEADERS, MAX_VALUE_BYTES, check_headers


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Time": "1:2:3", "X-Empty": "", "X-Long": "v" * 1024},
        {"authorization": "Bearer t", "Content-Type": "text/plain; charset=utf-8", "Accept": "*/*"},
        {"User-Agent": "mine", "Cookie": "a=b; c=d", "X_Odd!#$": 'a "b"\tc\\'},
        {"X-Name": "Zoë", "X-Webhook-Id": "mine", "My-Carillon-Job": "x"},
        {f"X-{n}": "v" for n in range(MAX_HEADERS)},
        {"X-Max": "v" * MAX_VALUE_BYTES},
    ],
    ids=["none", "awkward", "usual", "tokens", "near-ours", "many", "long"],
)
def test_taken(headers: dict[str, str]) -> None:
    check_headers(headers)


@pytest.mark.parametrize(
    ("headers", "code", "pointer"),
    [
        *(
            pytest.param({name: "x"}, "header_reserved", f"/target/headers/{name}", id=name)
            for name in (
                "Host", "content-length", "Connection", "keep-alive", "TE", "Trailer", "Upgrade", "Expect",
                "Transfer-Encoding", "Proxy-Authorization", "proxy-connection", "HTTP2-Settings",
                "Idempotency-Key", "webhook-id", "Webhook-Signature", "webhook-anything", "Carillon-Job",
                "carillon-callback", "traceparent", "TraceState",
            )
        ),
        pytest.param({"": "x"}, "header_invalid", "/target/headers/", id="no-name"),
        pytest.param({"a b": "x"}, "header_invalid", "/target/headers/a b", id="blank"),
        pytest.param({"a:": "x"}, "header_invalid", "/target/headers/a:", id="colon"),
        pytest.param({"a/b~": "x"}, "header_invalid", "/target/headers/a~1b~0", id="pointer-is-escaped"),
        pytest.param({"ä": "x"}, "header_invalid", "/target/headers/ä", id="not-ascii"),
        pytest.param({"x\r\ny": "x"}, "header_invalid", "/target/headers/x\r\ny", id="break-in-name"),
        pytest.param({"x\n": "x"}, "header_invalid", "/target/headers/x\n", id="break-after-name"),
        pytest.param({"a" * 257: "x"}, "header_invalid", "/target/headers/" + "a" * 257, id="long-name"),
        *(
            pytest.param({"X-A": f"a{c}b"}, "header_invalid", "/target/headers/X-A", id=repr(c))
            for c in ("\r", "\n", "\x00", "\x1b", "\x7f", "\ud800")
        ),
        pytest.param({"X-A": "v\n"}, "header_invalid", "/target/headers/X-A", id="break-at-the-end"),
        pytest.param({"X-A": "1", "x-a": "2"}, "header_invalid", "/target/headers/x-a", id="twice"),
        pytest.param(
            {"X-A": "v" * (MAX_VALUE_BYTES + 1)}, "header_invalid", "/target/headers/X-A", id="long-value"
        ),
        pytest.param(
            {f"X-{n}": "v" for n in range(MAX_HEADERS + 1)}, "headers_too_many", "/target/headers", id="many"
        ),
        pytest.param(
            {f"X-{n}": "v" * 8000 for n in range(5)}, "headers_too_large", "/target/headers", id="large"
        ),
    ],
)  # fmt: skip
def test_refused(headers: dict[str, str], code: str, pointer: str) -> None:
    with pytest.raises(RuleError, match=r"[;.]") as caught:
        check_headers(headers)
    assert (caught.value.code, caught.value.pointer) == (code, pointer)
