"""The worker process is killed at the worst instants; nothing is lost and every repeat is recognisable."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from aiohttp import web

from tests.processes.conftest import LEASE, Installation
from tests.sink import Arrival, Sink
from tests.stopping import going_on


async def test_a_run_whose_worker_is_killed_in_mid_run_is_delivered_again_within_the_lease(
    installation: Installation, sink: Sink
) -> None:
    async def hang_once(_: Arrival, before: int) -> web.Response:
        await asyncio.sleep(30 if before == 0 else 0)
        return web.Response(text="ok")

    sink.answers["/mid"] = hang_once
    await installation.create(id="mid", schedule={"in": 1}, target={"type": "http", "url": sink.url("/mid")})
    await sink.wait_for("/mid", 1)
    await asyncio.sleep(2)
    installation.kill_worker()
    killed = time.time()
    first, again = await sink.wait_for("/mid", 2, within=LEASE + 30)
    assert again.at - killed <= LEASE + 15
    assert again.execution_id == first.execution_id
    assert (first.delivery, again.delivery) == (1, 2)
    [row] = await installation.until_executions("mid", lambda rows: rows[0]["outcome"] == "succeeded")
    assert [(attempt["attempt"], attempt["delivery"]) for attempt in row["attempts"]] == [(1, 2)]
    assert row["lateness_ms"] < LEASE * 1000, "the first delivery's, not the second's"


async def test_occurrences_go_on_after_the_worker_is_killed_between_them_and_in_the_hold(
    installation: Installation, sink: Sink
) -> None:
    """A job each 3 s: its worker dies while it holds the next run, again and again."""
    await installation.create(
        id="hold", schedule={"every": 3}, target={"type": "http", "url": sink.url("/hold")}
    )
    await sink.wait_for("/hold", 1)
    for pause in (0.1, 1.5):
        await asyncio.sleep(pause)
        before = len(sink.at("/hold"))
        installation.kill_worker()
        await sink.wait_for("/hold", before + 2, within=LEASE + 15)
    arrivals = sink.at("/hold")
    repeats = [key for key, count in Counter(arrival.key for arrival in arrivals).items() if count > 1]
    assert len(repeats) <= 2
    for key in repeats:
        same = [arrival for arrival in arrivals if arrival.key == key]
        assert len({arrival.execution_id for arrival in same}) == 1
        assert len({arrival.delivery for arrival in same}) == len(same)
    rows = await installation.until_executions(
        "hold", lambda rows: len([row for row in rows if row["outcome"] == "succeeded"]) >= len(arrivals) - 1
    )
    # every occurrence from the first to the last is accounted for: run, or skipped or missed and counted
    first = min(row["scheduled_time"] for row in rows)
    assert sum(row["count"] for row in rows if row["scheduled_time"] >= first) >= len(
        {a.key for a in arrivals}
    )
    assert all(attempt["outcome"] != "running" for row in rows for attempt in row["attempts"][:-1])


async def test_a_run_answered_as_in_flight_is_delivered_again_when_its_worker_is_killed(
    installation: Installation, sink: Sink
) -> None:
    async def hang_once(_: Arrival, before: int) -> web.Response:
        await asyncio.sleep(30 if before == 0 else 0)
        return web.Response(text="ok")

    sink.answers["/kept"] = hang_once
    await installation.create(id="kept", schedule={"every": 60, "anchor": _soon()},
                              target={"type": "http", "url": sink.url("/kept")})  # fmt: skip
    [first] = await sink.wait_for("/kept", 1)
    assert going_on(await installation.api.post("/jobs/kept/pause", json={"reason": "look"})) == {first.key}
    installation.kill_worker()
    _, again = await sink.wait_for("/kept", 2, within=LEASE + 15)
    assert again.execution_id == first.execution_id
    rows = await installation.until_executions("kept", lambda rows: rows[0]["outcome"] == "succeeded")
    assert rows[0]["key"] == first.key


def _soon() -> str:
    """An anchor two seconds ahead: the job's first occurrence is due then."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3))
