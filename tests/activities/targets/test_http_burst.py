"""A thousand deliveries due at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from activities.targets.http import HttpSender
from activities.turnstile import Turnstile
from tests.activities.targets.local_targets import (
    Fired,
    Request,
    StartTarget,
    answer_ok,
    delivery,
    send,
)

RUNS = 1000


@pytest.mark.parametrize("requests_a_connection", [1_000_000, 3], ids=["kept-alive", "closed-after-three"])
async def test_a_thousand_at_once_through_a_hundred_places(
    sender: HttpSender,
    start_target: StartTarget,
    record_property: Callable[[str, object], None],
    requests_a_connection: int,
) -> None:
    """Each is sent once, none fails, connections are as few as places; also where the target closes
    kept-alive connections in mid-burst, as servers with a request limit do."""
    served: dict[asyncio.StreamWriter, int] = {}

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        served[writer] = served.get(writer, 0) + 1
        await answer_ok(request, writer)
        if served[writer] == requests_a_connection:
            writer.close()

    target = await start_target(script)
    turnstile = Turnstile(100)
    due = datetime.now(UTC)
    fired = [Fired() for _ in range(RUNS)]
    ends: list[float] = []
    began = time.perf_counter()

    async def run(number: int) -> str:
        async with turnstile.place("acme", due=due):
            answer = await send(sender, delivery(target.url, body={"n": number}), fired=fired[number])
        ends.append(time.perf_counter() - began)
        return f"{answer.outcome} {answer.error_kind}"

    outcomes = await asyncio.gather(*(run(number) for number in range(RUNS)))
    record_property("p99_s", round(sorted(ends)[int(RUNS * 0.99)], 3))
    assert {one.times for one in fired} == {1}
    assert len(target.requests) == RUNS
    assert set(outcomes) == {"succeeded None"}
    if requests_a_connection > RUNS:
        assert target.connections <= 100
    assert max(ends) < 30  # 0.5 s here, with the target on the same loop
