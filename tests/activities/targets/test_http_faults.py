"""Targets that hang, drip, reset, lie, or close what a request is about to use."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from activities.targets.http import HttpSender
from tests.activities.targets.local_targets import (
    Fired,
    Request,
    Script,
    StartTarget,
    answer_ok,
    delivery,
    reset,
    send,
)
from tests.stopwatch import Stopwatch


async def _hang(request: object, writer: Any) -> None:
    await asyncio.Event().wait()


async def _slow_headers(request: object, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-Slow: 1\r\n")
        await asyncio.sleep(0.1)


async def _informational(request: object, writer: Any) -> None:
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await asyncio.sleep(0.05)


async def _drip(request: object, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b".")
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("script", "status"),
    [
        pytest.param(_hang, None, id="silence"),
        pytest.param(_slow_headers, None, id="slow-headers"),
        pytest.param(_informational, None, id="informational-for-ever"),
        pytest.param(_drip, 200, id="dripping-body"),
    ],
)
async def test_the_deadline_bounds_everything(
    sender: HttpSender, start_target: StartTarget, script: Script, status: int | None
) -> None:
    """Progress does not extend it, and what came before it is told."""
    target = await start_target(script)
    began = asyncio.get_running_loop().time()
    with Stopwatch() as sending:
        answer = await send(sender, delivery(target.url), deadline_s=0.5)
    assert asyncio.get_running_loop().time() - began > 0.45
    assert (answer.outcome, answer.error_kind, answer.retryable) == ("timed_out", "timeout", True)
    assert answer.status_code == status
    assert answer.written_at is not None
    assert sending.seconds < 5
    if status is not None:
        assert answer.answer is not None
        assert answer.answer.startswith(".")


async def test_no_time_left_sends_nothing(sender: HttpSender, start_target: StartTarget) -> None:
    target = await start_target()
    fired = Fired()
    await send(sender, delivery(target.url))
    answer = await send(sender, delivery(target.url), deadline_s=0, fired=fired)
    assert (answer.outcome, answer.written_at, fired.times) == ("timed_out", None, 0)
    assert len(target.requests) == 1


async def test_a_peer_that_accepts_nothing(sender: HttpSender) -> None:
    """A full backlog swallows the connection; the deadline ends it and nothing has fired."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        fired = Fired()
        answer = await send(sender, delivery(url), deadline_s=0.5, fired=fired)
        for filler in fillers:
            filler.close()
    assert answer.outcome == "timed_out"
    assert (answer.written_at, fired.times) == (None, 0)


async def test_nobody_listens(sender: HttpSender) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/?token=secret"
        fired = Fired()
        answer = await send(sender, delivery(url), fired=fired)
    assert (answer.outcome, answer.error_kind, answer.retryable) == ("failed", "connect", True)
    assert (answer.written_at, fired.times) == (None, 0)
    assert answer.error is not None
    assert "secret" not in answer.error


async def _close(request: object, writer: Any) -> None:
    writer.close()


async def _reset(request: object, writer: Any) -> None:
    reset(writer)


@pytest.mark.parametrize("method", ["POST", "GET", "PUT", "DELETE"])
@pytest.mark.parametrize("script", [_close, _reset], ids=["closed", "reset"])
async def test_reset_after_the_request_was_processed(
    sender: HttpSender, start_target: StartTarget, script: Script, method: str
) -> None:
    """Reported as it is, for the job's own retries to decide upon; never sent again by the library."""
    target = await start_target(script)
    fired = Fired()
    answer = await send(sender, delivery(target.url, method=method), fired=fired)
    assert (answer.outcome, answer.error_kind, answer.retryable) == ("failed", "reset", True)
    assert answer.written_at is not None
    assert (fired.times, len(target.requests)) == (1, 1)


@pytest.mark.parametrize("method", ["POST", "GET", "PUT", "DELETE"])
@pytest.mark.parametrize("script", [_close, _reset], ids=["closed", "reset"])
async def test_reset_on_a_reused_connection_is_not_sent_again(
    sender: HttpSender, start_target: StartTarget, script: Script, method: str
) -> None:
    """aiohttp alone would send an idempotent request a second time here."""
    target = await start_target()
    assert (await send(sender, delivery(target.url, method=method))).outcome == "succeeded"
    target.script = script
    fired = Fired()
    answer = await send(sender, delivery(target.url, method=method), fired=fired)
    assert (answer.outcome, answer.error_kind, answer.retryable) == ("failed", "reset", True)
    assert (fired.times, len(target.requests), target.connections) == (1, 2, 1)


def _shut(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("end", [_shut, reset], ids=["closed", "reset"])
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_dead_connection_is_not_used_again(
    sender: HttpSender, start_target: StartTarget, end: Any, method: str
) -> None:
    """A server that closes after each answer, without saying so, fails no delivery and sees each once."""
    ended: list[asyncio.StreamWriter] = []

    async def answer_and_leave(request: Request, writer: asyncio.StreamWriter) -> None:
        await answer_ok(request, writer)
        ended.append(writer)

    target = await start_target(answer_and_leave)
    for number in range(1, 31):
        fired = Fired()
        answer = await send(sender, delivery(target.url, method=method), fired=fired)
        assert answer.outcome == "succeeded"
        assert fired.times == 1
        assert len(target.requests) == number
        end(ended.pop())
        # From here on the end is in the kernel, and this process's event loop has not seen it.
        await asyncio.sleep(0)
    assert target.connections == 30


async def test_living_connections_are_used_again(sender: HttpSender, start_target: StartTarget) -> None:
    target = await start_target()
    for _ in range(20):
        assert (await send(sender, delivery(target.url))).outcome == "succeeded"
    assert target.connections == 1


async def _garbage(request: object, writer: Any) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")


async def _huge_header(request: object, writer: Any) -> None:
    writer.write(b"HTTP/1.1 400 Bad\r\nX-Huge: " + b"x" * 100_000 + b"\r\n\r\n")


async def _endless_header(request: object, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX-Huge: ")
    while True:
        writer.write(b"x" * 10_000)
        await writer.drain()


async def _endless_headers(request: object, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: 1\r\n" * 100)
        await writer.drain()


@pytest.mark.parametrize("script", [_garbage, _huge_header, _endless_header, _endless_headers])
async def test_what_is_no_http_answer(sender: HttpSender, start_target: StartTarget, script: Script) -> None:
    """Headers are bounded, and an answer beyond the bounds has no status, whatever it began with."""
    target = await start_target(script)
    answer = await send(sender, delivery(target.url))
    assert (answer.outcome, answer.error_kind, answer.retryable) == ("failed", "protocol", True)
    assert answer.status_code is None
    assert answer.written_at is not None


async def test_a_bad_answer_spoils_no_other_delivery(sender: HttpSender, start_target: StartTarget) -> None:
    """An answer with more behind it than it says must not become the next delivery's answer."""

    async def two_answers(request: object, writer: Any) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
            b"HTTP/1.1 500 Smuggled\r\nContent-Length: 0\r\n\r\n"
        )

    target = await start_target(two_answers)
    for _ in range(5):
        answer = await send(sender, delivery(target.url))
        assert (answer.outcome, answer.status_code) == ("succeeded", 200)
