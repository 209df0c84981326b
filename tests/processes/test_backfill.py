"""A backfill on a whole installation, beside a schedule that goes on.

``CARILLON_BACKFILL_RUNS`` sets the number of occurrences, 30 unless it is given; 1000 take some minutes.
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from aiohttp import web

from tests.processes.conftest import Installation
from tests.sink import Arrival, Sink

SIZE = int(os.environ.get("CARILLON_BACKFILL_RUNS", "30"))
TAKES = 0.1
EVERY = 2
SLACK = 2.5
"""What a machine that is busy with other tests takes, beyond the one run a regular one may wait for."""
COUNTS = ("started", "succeeded", "dead_lettered", "cancelled")


async def answer(_: Arrival, __: int) -> web.Response:
    await asyncio.sleep(TAKES)
    return web.Response(text="ok")


def lateness(arrival: Arrival) -> float:
    return arrival.at - datetime.fromisoformat(arrival.headers["carillon-scheduled-time"]).timestamp()


async def followed(installation: Installation, path: str, within: float) -> list[dict[str, Any]]:
    """Its progress, until it has ended."""
    told: list[dict[str, Any]] = []
    async with asyncio.timeout(within):
        while True:
            found = await installation.api.get(path)
            if found.status_code == 200:
                told.append(found.json())
                if told[-1]["status"] != "running":
                    return told
            await asyncio.sleep(0.1)


async def test_each_occurrence_once_while_the_schedule_goes_on_and_a_cancel_in_a_second(
    installation: Installation, sink: Sink
) -> None:
    sink.answers["/filled"] = answer
    now = datetime.now(UTC).replace(microsecond=0)
    begin = now - timedelta(days=1)
    await installation.create(
        id="filled",
        schedule={"every": EVERY, "anchor": begin.isoformat()},
        target={"type": "http", "url": sink.url("/filled")},
    )
    path = "/jobs/filled/backfill"
    asked = {"from": begin.isoformat(), "to": (begin + timedelta(seconds=EVERY * SIZE)).isoformat()}
    started = time.monotonic()
    accepted = await installation.api.post(path, json=asked)
    assert (accepted.status_code, accepted.json()["total"]) == (202, SIZE), accepted.text
    told = await followed(installation, "/jobs/filled/backfills/b1", within=60 + SIZE)
    took = time.monotonic() - started
    assert [told[-1][name] for name in (*COUNTS, "remaining")] == [SIZE, SIZE, 0, 0, 0]
    for earlier, later in pairwise(told):
        assert all(earlier[name] <= later[name] for name in COUNTS)
        assert earlier["remaining"] >= later["remaining"]
    arrivals = sink.at("/filled")
    filled = [one for one in arrivals if one.headers["carillon-trigger"] == "backfill"]
    assert len({one.execution_id for one in filled}) == len(filled) == SIZE
    regular = [lateness(one) for one in arrivals if one.headers["carillon-trigger"] == "schedule"]
    assert len(regular) >= took // EVERY - 1
    assert max(regular) <= TAKES + SLACK

    again = await installation.api.post(path, json={**asked, "only": "all"})
    assert again.status_code == 202, again.text
    async with asyncio.timeout(20):
        while not any(one.key.endswith("+b2") for one in sink.at("/filled")):
            await asyncio.sleep(0.02)
    called = time.monotonic()
    cancelled = (await installation.api.delete("/jobs/filled/backfills/b2")).json()
    answered, at = time.monotonic() - called, time.time()
    assert (cancelled["status"], answered < 1 + SLACK) == ("cancelled", True)
    before = [one.key for one in sink.at("/filled") if one.key.endswith("+b2")]
    await asyncio.sleep(2)
    after = [one.key for one in sink.at("/filled") if one.key.endswith("+b2") and one.at > at]
    assert set(after) <= {one["key"] for one in cancelled["in_flight"]}
    job = (await installation.api.get("/jobs/filled")).json()
    assert (job["stats"]["skipped"], job["stats"]["missed"]) == (0, 0)
    print(  # noqa: T201
        f"{SIZE} in {took:.1f} s, progress read {len(told)} times; {len(regular)} regular runs late by "
        f"{sorted(regular)[len(regular) // 2]:.3f} s (median), {max(regular):.3f} s (most); cancelled after "
        f"{len(before)} in {answered:.3f} s, {len(after)} of it after the answer"
    )
