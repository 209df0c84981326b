"""Answers that break HTTP behind their status, answers nobody asked for, and interim ones without end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from activities.targets.answering import HEAD_BYTES, Answering
from activities.targets.http import HttpSender
from tests.activities.targets.local_targets import StartTarget, delivery, send

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
NOTHING = b"HTTP/1.1 204 No Content\r\n"
AGO = 0.05
"""Seconds between two segments."""


def in_segments(*pieces: bytes, close: bool = False) -> Any:
    async def script(request: object, writer: Any) -> None:
        for count, piece in enumerate(pieces):
            if count:
                await asyncio.sleep(AGO)
            writer.write(piece)
            await writer.drain()
        if close:
            writer.close()

    return script


BROKEN: dict[str, tuple[Sequence[bytes], str, int]] = {
    "length-in-characters": (
        ['HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"st":"dejé"}'.encode()], "succeeded", 200,
    ),
    "more-than-it-says": ([OK + b"okEXTRA"], "succeeded", 200),
    "blank-line-behind": ([OK + b"ok\r\n"], "succeeded", 200),
    "204-with-body": ([NOTHING + b"Content-Length: 2\r\n\r\n{}"], "succeeded", 204),
    "204-in-chunks": ([NOTHING + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"], "succeeded", 204),
    "204-until-the-end": ([NOTHING + b"\r\n{}"], "succeeded", 204),
    "304-with-body": ([b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\nok"], "failed", 304),
    "410-with-a-comment": ([b"HTTP/1.1 410 Gone\r\nContent-Length: 2\r\n\r\nok\n\n<!-- -->"], "failed", 410),
    "http-1.0": ([b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nokEXTRA"], "succeeded", 200),
    "no-chunk": ([CHUNKED + b"ZZ\r\nok\r\n"], "succeeded", 200),
    "a-chunk-then-none": ([CHUNKED + b"2\r\nok\r\nZZ\r\n"], "succeeded", 200),
    "no-chunk-later": ([CHUNKED, b"ZZ\r\nok\r\n"], "succeeded", 200),
    "a-chunk-then-none-later": ([CHUNKED, b"2\r\nok\r\n", b"ZZ\r\n"], "succeeded", 200),
    "chunk-without-end": ([CHUNKED, b"2\r\nokXX"], "succeeded", 200),
    "chunk-too-large": ([CHUNKED, b"F" * 40 + b"\r\nok"], "succeeded", 200),
    "negative-chunk": ([CHUNKED, b"-2\r\nok"], "succeeded", 200),
    "bad-trailer": ([CHUNKED, b"2\r\nok\r\n0\r\nBad Trailer\r\n\r\n"], "succeeded", 200),
    "a-long-header": (
        [b"HTTP/1.1 200 OK\r\nContent-Security-Policy: " + b"a" * 30_000 + b"\r\nContent-Length: 0\r\n\r\n"],
        "succeeded", 200,
    ),
    "many-headers": (
        [b"HTTP/1.1 200 OK\r\n" + b"Set-Cookie: a=b\r\n" * 300 + b"Content-Length: 0\r\n\r\n"],
        "succeeded", 200,
    ),
    "head-in-pieces": ([OK[:17], OK[17:-3], OK[-3:-1], OK[-1:] + b"ok"], "succeeded", 200),
    "interim-and-final-at-once": (
        [b"HTTP/1.1 102 Processing\r\n\r\n" * 50 + OK + b"ok"], "succeeded", 200,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("close", [False, True], ids=["stays-open", "closes"])
async def test_the_status_decides_whatever_follows_it(
    sender: HttpSender, start_target: StartTarget, name: str, close: bool
) -> None:
    """The run was processed and said so: it is neither sent again nor waited for until its deadline."""
    pieces, outcome, status = BROKEN[name]
    target = await start_target(in_segments(*pieces, close=close))
    for _ in range(2):
        answer = await send(sender, delivery(target.url))
        assert (answer.outcome, answer.status_code, answer.retryable) == (outcome, status, False)
    assert len(target.requests) == 2


@pytest.mark.parametrize("body", [b"", b"ok", b"okEXTRA"])
async def test_a_body_that_answers_to_head_is_left(
    sender: HttpSender, start_target: StartTarget, body: bytes
) -> None:
    target = await start_target(in_segments(OK + body))
    for _ in range(2):
        answer = await send(sender, delivery(target.url, method="HEAD"))
        assert (answer.outcome, answer.status_code) == ("succeeded", 200)


UNASKED = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale",
    b"HTTP/1.1 408 Request Timeout\r\n\r\n",
    b"\r\n",
]


@pytest.mark.parametrize("unasked", UNASKED)
@pytest.mark.parametrize("at_once", [True, False])
async def test_what_comes_on_an_idle_connection_answers_nothing(
    sender: HttpSender, start_target: StartTarget, unasked: bytes, at_once: bool
) -> None:
    """Some servers say that they give a connection up, and others say things twice."""
    real = b"HTTP/1.1 500 Real\r\nContent-Length: 4\r\n\r\nreal"
    target = await start_target(in_segments(real + unasked) if at_once else in_segments(real, unasked))
    for _ in range(5):
        answer = await send(sender, delivery(target.url))
        assert (answer.status_code, answer.answer) == (500, "real")
        await asyncio.sleep(3 * AGO)
    assert len(target.requests) == 5


async def test_a_target_that_speaks_before_it_is_asked_has_answered_nothing() -> None:
    """On a real socket nobody can tell whether the words or the request came first."""
    connection = Answering(asyncio.get_running_loop())
    connection.data_received(OK + b"ok")
    assert connection.spoilt
    connection.expect()
    connection.data_received(OK + b"ok")
    assert not len(connection), "a spoilt connection has no answers"


@pytest.mark.parametrize("flood", [b"\n", b"\r\n", b"HTTP/1.1 102 \r\n\r\n", b"X: y\r\n"], ids=str)
async def test_a_segment_of_nothing_is_read_in_linear_time(flood: bytes) -> None:
    """Other runs of the worker wait meanwhile. Twice as much may not take four times as long."""

    def seconds(size: int) -> float:
        connection = Answering(asyncio.get_running_loop())
        connection.expect()
        connection.set_response_params(max_line_size=HEAD_BYTES, max_field_size=HEAD_BYTES, max_headers=9000)
        segment = (flood * size)[:size]
        begun = time.process_time()
        connection.data_received(segment)
        return time.process_time() - begun

    least = min(seconds(HEAD_BYTES // 8) for _ in range(5))
    assert min(seconds(HEAD_BYTES) for _ in range(5)) < 20 * max(least, 0.001)


FLOODS = {
    "interim": b"HTTP/1.1 102 Processing\r\n\r\n",
    "interim-with-headers": b"HTTP/1.1 103 Early Hints\r\n" + b"Link: </a>\r\n" * 90 + b"\r\n",
    "blank-lines": b"\r\n",
}


@pytest.mark.parametrize("name", FLOODS)
async def test_interim_answers_without_end_are_no_answer_and_hold_up_nobody(
    sender: HttpSender, start_target: StartTarget, name: str
) -> None:
    async def flood(request: object, writer: Any) -> None:
        while not writer.transport.is_closing():
            writer.write(FLOODS[name] * (16_384 // len(FLOODS[name])))
            await writer.drain()

    flooding, honest = await start_target(flood), await start_target()
    answer = asyncio.ensure_future(send(sender, delivery(flooding.url), deadline_s=60))
    others = 0
    while not answer.done():
        assert (await send(sender, delivery(honest.url), deadline_s=60)).outcome == "succeeded"
        others += 1
    ended = answer.result()
    assert (ended.outcome, ended.error_kind, ended.status_code) == ("failed", "protocol", None)
    assert others >= 1
