"""Bodies are bounded before they are parsed, and what is let through can be stored and sent."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from api.body import MAX_DEPTH, parse, read_object
from api.problems import Kind, ProblemError


def request(chunks: list[bytes], **headers: str) -> Request:
    async def stream() -> AsyncIterator[dict[str, Any]]:
        for chunk in chunks:
            yield {"type": "http.request", "body": chunk, "more_body": True}
        yield {"type": "http.request", "body": b"", "more_body": False}

    messages = stream()
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": named, "method": "POST"}, messages.__anext__)


REFUSED = {
    "not utf-8": b'{"a": "\xff"}',
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "cut off": b'{"a": ',
    "two values": b"{} {}",
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": -Infinity}',
    "overflowing number": b'{"a": 1e999}',
    "number of 5000 digits": b'{"a": ' + b"1" * 5000 + b"}",
    "name given twice": b'{"a": 1, "a": 2}',
    "half a surrogate pair": rb'{"a": "\ud800"}',
    "half a surrogate pair in a name": rb'{"\udfff": 1}',
    "NUL": rb'{"a": "x\u0000"}',
    "too deep in arrays": b'{"a": ' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
    "too deep in objects": b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1),
    "deep enough to end a parser": b"[" * 1_000_000,
    "deep behind an open text": b'["' + b"[" * 100_000,
}


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_as_malformed(raw: bytes) -> None:
    with pytest.raises(ProblemError) as refused:
        parse(raw)
    assert refused.value.kind is Kind.MALFORMED


ACCEPTED = {
    "as deep as allowed": b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
    "brackets in a text": b'{"a": "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\"{{{{"}',
    "a whole surrogate pair": rb'{"a": "\ud83d\ude00"}',
    "a backslash before u0000": rb'{"a": "\\u0000"}',
    "a large whole number": b'{"a": 123456789012345678901234567890}',
}


@pytest.mark.parametrize("raw", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_is_let_through(raw: bytes) -> None:
    assert parse(raw) == json.loads(raw)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_ordinary_json_is_read_as_it_is_written(value: Any) -> None:
    names_are_fine = "\\u0000" not in json.dumps(value)
    if names_are_fine:
        assert parse(json.dumps(value).encode()) == value
        assert parse(json.dumps(value, ensure_ascii=False).encode(errors="ignore")) is not Ellipsis


@given(st.binary(max_size=300) | st.text('[]{}",:0\\u\n', max_size=300).map(str.encode))
def test_no_bytes_are_worse_than_a_problem(raw: bytes) -> None:
    try:
        value = parse(raw)
    except ProblemError:
        return
    json.dumps(value, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "raw",
    [b'"' + b"\\" * 60_000, b'"\\"' * 20_000, b'{"a":' * 10_000, b"[[]," * 15_000, b'""' * 30_000],
    ids=["backslashes", "escaped quotes", "objects", "arrays", "empty texts"],
)
def test_no_body_costs_much(raw: bytes) -> None:
    started = time.process_time()
    with pytest.raises(ProblemError):
        parse(raw)
    assert time.process_time() - started < 0.5


async def test_a_declared_length_is_refused_before_a_byte_is_read() -> None:
    with pytest.raises(ProblemError) as refused:
        await read_object(request([], content_length="70000", content_type="application/json"))
    assert refused.value.kind is Kind.TOO_LARGE


async def test_a_stream_without_a_length_is_cut_off_at_the_limit() -> None:
    endless = [b"x" * 16_384] * 1000
    with pytest.raises(ProblemError) as refused:
        await read_object(request(endless, content_type="application/json"))
    assert refused.value.kind is Kind.TOO_LARGE


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ('Application/JSON; charset="UTF-8"', 200),
        ("application/json; charset=latin-1", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/merge-patch+json", 415),
        ("", 415),
    ],
)
async def test_media_types(content_type: str, status: int) -> None:
    try:
        await read_object(request([b"{}"], content_type=content_type))
        found = 200
    except ProblemError as problem:
        found = problem.kind.status
    assert found == status


@pytest.mark.parametrize("raw", [b"[]", b"null", b'"x"', b"1"], ids=str)
async def test_a_body_that_is_no_object_is_422(raw: bytes) -> None:
    with pytest.raises(ProblemError) as refused:
        await read_object(request([raw], content_type="application/json"))
    assert refused.value.kind is Kind.INVALID


async def test_an_empty_body_is_allowed_only_where_nothing_has_to_be_said() -> None:
    assert await read_object(request([]), may_be_empty=True) == {}
    with pytest.raises(ProblemError):
        await read_object(request([]))
