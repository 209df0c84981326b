"""What a target's answer means, and how much of it is read."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from datetime import UTC, datetime
from typing import Any

import pytest

from activities.targets.answer import ANSWER_BYTES, TRUNCATED
from activities.targets.http import HttpSender
from tests.activities.targets.local_targets import (
    MakeSender,
    Script,
    StartTarget,
    answering,
    delivery,
    send,
)


@pytest.mark.parametrize(
    ("status", "success", "outcome", "kind", "retryable"),
    [
        ("200 OK", ["2xx"], "succeeded", None, False),
        ("202 Accepted", ["2xx"], "succeeded", None, False),
        ("204 No Content", ["2xx"], "succeeded", None, False),
        ("200 OK", ["204"], "failed", "status", False),
        ("404 Not Found", ["2xx", "404"], "succeeded", None, False),
        ("302 Found", ["2xx", "3xx"], "succeeded", None, False),
        ("503 Busy", ["5xx"], "succeeded", None, False),
        ("301 Moved", ["2xx"], "failed", "redirect", False),
        ("304 Not Modified", ["2xx"], "failed", "redirect", False),
        ("307 Temporary", ["2xx"], "failed", "redirect", False),
        ("400 Bad", ["2xx"], "failed", "status", False),
        ("401 Who", ["2xx"], "failed", "status", False),
        ("404 Not Found", ["2xx"], "failed", "status", False),
        ("408 Late", ["2xx"], "failed", "status", True),
        ("409 Conflict", ["2xx"], "failed", "status", False),
        ("410 Gone", ["2xx"], "failed", "status", False),
        ("425 Early", ["2xx"], "failed", "status", True),
        ("429 Slow Down", ["2xx"], "failed", "status", True),
        ("500 Oops", ["2xx"], "failed", "status", True),
        ("501 Not Implemented", ["2xx"], "failed", "status", True),
        ("503 Busy", ["2xx"], "failed", "status", True),
        ("599 Odd", ["2xx"], "failed", "status", True),
        ("600 Odder", ["2xx"], "failed", "status", False),
        ("999 Denied", ["2xx"], "failed", "status", False),
        ("101 Switching Protocols", ["2xx"], "failed", "status", False),
    ],
)
async def test_the_status_decides(
    sender: HttpSender,
    start_target: StartTarget,
    status: str,
    success: list[str],
    outcome: str,
    kind: str | None,
    retryable: bool,
) -> None:
    """One table for every status: docs/delivery.md, What the answer means."""
    target = await start_target(answering(f"{status}\r\nLocation: http://127.0.0.1:1/"))
    answer = await send(sender, delivery(target.url, success=success))
    assert (answer.outcome, answer.error_kind, answer.retryable) == (outcome, kind, retryable)
    assert answer.status_code == int(status[:3])
    assert answer.written_at is not None
    assert (answer.error is None) == (outcome == "succeeded")
    assert len(target.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("way", ["location", "refresh", "relative"])
async def test_no_redirect_is_followed_with_the_jobs_credentials(
    sender: HttpSender, start_target: StartTarget, status: int, way: str
) -> None:
    """No header reaches another origin, custom keys included, nor a second time the same one."""
    other = await start_target()
    onward = {"location": f"Location: {other.url}", "refresh": f"Refresh: 0; url={other.url}"}
    target = await start_target(answering(f"{status} Elsewhere\r\n{onward.get(way, 'Location: /again')}"))
    headers = {"X-Api-Key": "secret", "Authorization": "Bearer t"}
    answer = await send(sender, delivery(target.url, headers=headers, body={}))
    assert (answer.outcome, answer.error_kind, answer.status_code) == ("failed", "redirect", status)
    assert (other.connections, target.connections, len(target.requests)) == (0, 1, 1)


@pytest.mark.parametrize(
    ("status", "header", "expected"),
    [
        pytest.param("429 Slow", "120", 120.0, id="seconds"),
        pytest.param("503 Busy", "Wed, 21 Oct 2026 07:28:00 GMT", 60.0, id="date"),
        pytest.param("429 Slow", "Wednesday, 21-Oct-26 07:28:00 GMT", 60.0, id="date-of-rfc-850"),
        pytest.param("503 Busy", "Wed Oct 21 07:28:00 2026", 60.0, id="date-of-asctime"),
        pytest.param(
            "503 Busy",
            "Wed, 21 Oct 2026 07:28:00 GMT\r\nDate: Wed, 21 Oct 2026 06:27:00 GMT",
            60.0,
            id="by-our-clock-not-theirs",
        ),
        pytest.param(
            "503 Busy", "60\r\nDate: Wed, 21 Oct 2026 09:27:00 GMT", 60.0, id="seconds-need-no-clock"
        ),
        pytest.param("503 Busy", "Wed, 21 Oct 2026 07:26:59 GMT", None, id="a-date-gone-by"),
        pytest.param("500 Oops", "9999999999", 3600.0, id="absurd-is-capped"),
        pytest.param("503 Busy", "Fri, 31 Dec 9999 23:59:59 GMT", 3600.0, id="absurd-date-is-capped"),
        pytest.param("429 Slow", "-1", None, id="negative"),
        pytest.param("425 Early", "1.5", None, id="fraction"),
        pytest.param("408 Late", "30", 30.0, id="any-status-that-is-retried"),
        pytest.param("302 Found", "30", None, id="redirect"),
        pytest.param("429 Slow", "soon", None, id="nonsense"),
        pytest.param("503 Gone", "soon\r\nRetry-After: 6", 6, id="the-first-that-makes-sense"),
        pytest.param("503 Gone", "7\r\nRetry-After: 6", 7, id="the-first-of-two"),
        pytest.param("400 Bad", "120", None, id="final-anyway"),
        pytest.param("200 OK", "120", None, id="success"),
    ],
)
async def test_retry_after(
    make_sender: MakeSender, start_target: StartTarget, status: str, header: str, expected: float | None
) -> None:
    target = await start_target(answering(f"{status}\r\nRetry-After: {header}"))
    sender = make_sender(now=lambda: datetime(2026, 10, 21, 7, 27, tzinfo=UTC))
    assert (await send(sender, delivery(target.url))).retry_after_s == expected


BINARY = bytes(range(256)) * 4


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        pytest.param("", b"", None, id="empty"),
        pytest.param("", "grün".encode(), "grün", id="utf-8"),
        pytest.param("\r\nContent-Type: text/plain; charset=latin-1", b"gr\xfcn", "grün", id="latin-1"),
        pytest.param("\r\nContent-Type: text/plain; charset=utf-16", "ü".encode("utf-16"), "ü", id="utf-16"),
        pytest.param(
            "\r\nContent-Type: text/plain; charset=utf-16",
            "ü{".encode("utf-16-le"),
            "ü{",
            id="utf-16-that-does-not-say-its-order",
        ),
        pytest.param("\r\nContent-Type: text/plain; charset=utf-16", b"{", "\ufffd", id="half-of-utf-16"),
        pytest.param(
            "\r\nContent-Type: text/plain; charset=zlib", b"x", "x", id="a-codec-that-is-no-charset"
        ),
        pytest.param("\r\nContent-Type: text/plain; charset=nope", b"x", "x", id="unknown-charset"),
        pytest.param("", b"a\x00b\x1b[2Jc", "a\ufffdb\ufffd[2Jc", id="controls-are-replaced"),
        pytest.param("", b"\xff\xfe", "\ufffd\ufffd", id="not-text"),
        pytest.param("\r\nContent-Encoding: gzip", gzip.compress(b"packed"), "packed", id="gzip"),
        pytest.param("\r\nContent-Encoding: deflate", zlib.compress(b"packed"), "packed", id="deflate"),
        pytest.param(
            "\r\nContent-Encoding: deflate", zlib.compress(b"packed")[2:-4], "packed", id="raw-deflate"
        ),
        pytest.param("\r\nContent-Encoding: gzip", b"not gzip", None, id="not-gzip-at-all"),
        pytest.param(
            "\r\nContent-Encoding: br",
            b"\x0b\x02",
            "[not decoded: content-encoding br]",
            id="unknown-encoding",
        ),
    ],
)
async def test_the_answer_is_kept_as_text(
    sender: HttpSender, start_target: StartTarget, headers: str, body: bytes, expected: str | None
) -> None:
    target = await start_target(answering(f"200 OK{headers}", body))
    answer = await send(sender, delivery(target.url))
    assert (answer.outcome, answer.answer) == ("succeeded", expected)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    "body",
    [b"x" * 4097, "ü".encode() * 3000, BINARY * 8, b"x" * 60_000],
    ids=["one-too-many", "two-byte-characters", "binary-grows", "many"],
)
async def test_a_long_answer_is_cut_and_marked(
    sender: HttpSender, start_target: StartTarget, body: bytes, packed: bool
) -> None:
    """At most 4 KiB as UTF-8, the mark included, never half a character; the connection lives on."""
    script = answering("200 OK\r\nContent-Encoding: gzip", gzip.compress(body)) if packed else None
    target = await start_target(script or answering("200 OK", body))
    for _ in range(2):
        answer = await send(sender, delivery(target.url))
        assert answer.outcome == "succeeded"
        assert answer.answer is not None
        assert answer.answer.endswith(TRUNCATED)
        assert len(answer.answer.encode()) <= ANSWER_BYTES
        assert len(answer.answer.encode()) > ANSWER_BYTES - 4
        if body != BINARY * 8:
            assert "\ufffd" not in answer.answer
    assert target.connections == 1


async def test_four_kilobytes_are_kept_whole(sender: HttpSender, start_target: StartTarget) -> None:
    target = await start_target(answering("200 OK", b"x" * ANSWER_BYTES))
    assert (await send(sender, delivery(target.url))).answer == "x" * ANSWER_BYTES


def _endless(head: bytes, piece: bytes) -> Script:
    async def script(request: object, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()

    return script


_BOMB = zlib.compressobj(9, wbits=31)
_BOMB_START = b"".join(_BOMB.compress(bytes(1 << 20)) for _ in range(64)) + _BOMB.flush(zlib.Z_FULL_FLUSH)
_DEFLATED = zlib.compressobj(9)
_DEFLATE_START = b"".join(_DEFLATED.compress(bytes(1 << 20)) for _ in range(64)) + _DEFLATED.flush(
    zlib.Z_FULL_FLUSH
)
_MEMBERS = gzip.compress(bytes(1 << 20)) * 16
_CHUNK = bytes(16384)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            _endless(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"4000\r\n" + _CHUNK + b"\r\n",
            ),
            id="chunked",
        ),
        pytest.param(
            _endless(b"HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n", _CHUNK), id="one-tebibyte"
        ),
        pytest.param(_endless(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", _CHUNK), id="until-close"),
        pytest.param(
            _endless(
                b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1099511627776\r\n\r\n",
                _BOMB_START,
            ),
            id="gzip-bomb",
        ),
        pytest.param(
            _endless(b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\n\r\n", _DEFLATE_START),
            id="deflate-bomb",
        ),
        pytest.param(
            _endless(b"HTTP/1.1 200 OK\r\nContent-Encoding: x-gzip\r\n\r\n", _MEMBERS),
            id="bomb-of-many-members",
        ),
        pytest.param(
            _endless(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1;" + b"x" * 200 + b"\r\na\r\n"
            ),
            id="chunk-extensions",
        ),
    ],
)
async def test_an_endless_answer_is_left(
    sender: HttpSender, start_target: StartTarget, script: Script
) -> None:
    """The status decides; the read is bounded in bytes, before and after decompression, and in memory."""
    target = await start_target(script)
    tracemalloc.start()
    try:
        answer = await send(sender, delivery(target.url))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (answer.outcome, answer.status_code) == ("succeeded", 200)
    assert answer.answer is not None
    assert answer.answer.endswith(TRUNCATED)
    assert len(answer.answer.encode()) <= ANSWER_BYTES
    assert peak < 5_000_000
    target.script = answering("200 OK")
    assert (await send(sender, delivery(target.url))).outcome == "succeeded"
    assert target.connections == 2  # what was left is not read on, and not used again


async def test_an_answer_that_breaks_off_changes_nothing(
    sender: HttpSender, start_target: StartTarget
) -> None:
    """The status has been said; a retry would only deliver twice."""

    async def break_off(request: object, writer: Any) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart")
        await writer.drain()
        writer.close()

    target = await start_target(break_off)
    answer = await send(sender, delivery(target.url))
    assert (answer.outcome, answer.answer) == ("succeeded", "part" + TRUNCATED)
