"""The instant of the firing: told just before the first byte, and nothing written without it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from activities.targets.http import HttpSender
from tests.activities.targets.local_targets import (
    Fired,
    MakeSender,
    Request,
    StartTarget,
    answer_ok,
    delivery,
    send,
)


class Abort(Exception):
    """A caller's own."""


@pytest.mark.parametrize("pooled", [False, True], ids=["new-connection", "pooled-connection"])
@pytest.mark.parametrize(
    "refusal",
    [Abort(), OSError("mine"), TimeoutError(), ConnectionResetError(), asyncio.CancelledError()],
    ids=lambda refusal: type(refusal).__name__,
)
async def test_a_refusal_writes_nothing_and_comes_back_as_it_is(
    sender: HttpSender, start_target: StartTarget, refusal: BaseException, pooled: bool
) -> None:
    """Whatever ``before_write`` raises, even what the HTTP library uses for its own ends."""
    target = await start_target()
    if pooled:
        await send(sender, delivery(target.url))
    bytes_before = target.received

    def refuse() -> None:
        raise refusal

    with pytest.raises(type(refusal)) as caught:
        await send(sender, delivery(target.url, body={}), fired=refuse)
    assert caught.value is refusal
    # Another request makes the round trip; bytes of the refused one would have come before it.
    await send(sender, delivery(target.url))
    size = target.received - bytes_before
    await send(sender, delivery(target.url))
    assert target.received - bytes_before == 2 * size
    assert len(target.requests) == 2 + pooled
    assert target.connections == 2


async def test_no_turn_of_the_loop_lies_between_telling_and_writing(
    sender: HttpSender, start_target: StartTarget
) -> None:
    """A cancellation that is asked for inside ``before_write`` comes too late for this request."""
    target = await start_target()
    task: asyncio.Task[object]

    def cancel_now() -> None:
        task.cancel()

    task = asyncio.create_task(
        sender.send(delivery(target.url), deadline=timedelta(seconds=30), before_write=cancel_now)
    )
    with pytest.raises(asyncio.CancelledError):
        await task
    await _until(lambda: len(target.requests) == 1)


async def test_cancelled_at_any_turn_of_the_loop(make_sender: MakeSender, start_target: StartTarget) -> None:
    """Nothing is written unless ``before_write`` was called, nor after the cancellation has ended.

    Cancels after 0, 1, 2, … turns, with names that take some turns to look up, on new and pooled
    connections, until the delivery is through before the cancellation comes.
    """

    async def slow_lookup(host: str) -> Sequence[str]:
        for _ in range(3):
            await asyncio.sleep(0)
        return ["127.0.0.1"]

    async def slow_answer(request: Request, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        await answer_ok(request, writer)

    rng = random.Random(5)
    target = await start_target(slow_answer)
    url = f"http://target.test:{target.port}/"
    fired_total = unfired = finished = 0
    for turns in [*range(60), *(rng.randrange(60) for _ in range(200))]:
        if turns % 2:
            sender = make_sender(lookup=slow_lookup)  # No connection to use again.
        elif turns == 0:
            sender = make_sender(lookup=slow_lookup)
        fired = Fired()
        task = asyncio.create_task(send(sender, delivery(url, body={"n": 1}), fired=fired))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        fired_when_cancelled = fired.times
        try:
            await task
        except asyncio.CancelledError:
            unfired += fired.times == 0
        else:
            finished += 1
        assert fired.times == fired_when_cancelled
        fired_total += fired.times
    await _until(lambda: len(target.requests) == fired_total)
    await asyncio.sleep(0.05)
    assert len(target.requests) == fired_total
    assert unfired > 10
    assert fired_total > 10
    assert finished > 0


async def test_cancelled_sends_leave_no_connection_behind(
    sender: HttpSender, start_target: StartTarget
) -> None:
    """A request that was given up is not answered into the next one's hands."""
    silent = asyncio.Event()

    async def hang(request: Request, writer: asyncio.StreamWriter) -> None:
        await silent.wait()
        writer.write(b"HTTP/1.1 500 Late\r\nContent-Length: 0\r\n\r\n")

    target = await start_target(hang)
    tasks = [asyncio.create_task(send(sender, delivery(target.url))) for _ in range(20)]
    await _until(lambda: len(target.requests) == 20)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    target.script = answer_ok
    silent.set()
    answers = await asyncio.gather(*(send(sender, delivery(target.url)) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert target.connections == 40


async def _until(condition: Callable[[], bool]) -> None:
    """Wait for what another part of this process is about to do; 20 s at most."""
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it did not come to pass")
