"""A job that takes longer than its interval, under each policy: exactly the documented sequence."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import pytest
from aiohttp import web

from tests.fleet import Fleet, fresh
from tests.sink import Arrival, Sink
from tests.workflows.asking import Job, ended, seen, stored, told
from tests.workflows.slow import EVERY, SLACK, TAKES, Slow, after_due, by_slot, create, due, slots

WAITS = True


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    sink = await Sink(notices_hang_ups=True).start()
    yield sink
    await sink.stop()


async def test_forbid_runs_every_second_occurrence(fleet: Fleet, sink: Sink) -> None:
    slow = Slow()
    path, job = await create(fleet, sink, slow, "forbid", max_runs=3)
    arrivals = await sink.wait_for(path, 3)
    assert slots(arrivals) == [0, 2, 4]
    assert slow.most == 1
    rows = await stored(fleet, job, lambda rows: ended(rows, 5))
    assert by_slot(rows)[:5] == [("succeeded", None, 1), ("skipped", "overlap", 1)] * 2 + [
        ("succeeded", None, 1)
    ]


async def test_queue_runs_all_of_them_in_order(fleet: Fleet, sink: Sink) -> None:
    slow = Slow()
    path, job = await create(fleet, sink, slow, "queue", max_runs=4)
    arrivals = await sink.wait_for(path, 4)
    assert slots(arrivals) == [0, 1, 2, 3]
    assert slow.most == 1
    starts = [one.at for one in arrivals]
    between = [after - before for before, after in itertools.pairwise(starts)]
    assert min(between) >= TAKES
    assert median(between) < TAKES + SLACK
    found = await seen(job, lambda found: found.status == "completed")
    assert (found.stats.succeeded, found.stats.skipped, found.stats.missed) == (4, 0, 0)


async def test_queue_drops_the_oldest_when_it_is_full(fleet: Fleet, sink: Sink) -> None:
    """Three fall due during a run of seven seconds: with room for two the first of them goes."""
    slow = Slow(seconds=7)
    path, job = await create(fleet, sink, slow, "queue", concurrency={"max_queued": 2})
    arrivals = await sink.wait_for(path, 2)
    assert slots(arrivals) == [0, 2]
    rows = await stored(fleet, job, lambda rows: any(row.outcome == "skipped" for row in rows))
    assert told([row for row in rows if row.outcome == "skipped"]) == [("skipped", "queue_full", 1)]


@pytest.mark.parametrize("grace", [2, 90])
async def test_queue_catches_up_with_all_that_fell_due_while_nobody_worked(
    fleet: Fleet, sink: Sink, grace: int
) -> None:
    """More than are planned at a time: each once, in order, whether they are within their grace or not."""
    slow = Slow(seconds=0.02)
    path, job, all_due = await overdue(fleet, sink, slow, "queue", grace, max_queued=2)
    found = await seen(job, lambda found: found.status == "completed", within=90)
    assert (found.stats.succeeded, found.stats.skipped, found.stats.missed) == (len(all_due), 0, 0)
    assert [due(one) for one in sink.at(path)] == all_due
    assert slow.most == 1


@pytest.mark.parametrize("grace", [2, 90])
async def test_allow_catches_up_with_all_of_them_side_by_side(fleet: Fleet, sink: Sink, grace: int) -> None:
    slow = Slow(seconds=0.5)
    path, job, all_due = await overdue(fleet, sink, slow, "allow", grace, max_queued=2, limit=3)
    found = await seen(job, lambda found: found.status == "completed" and not found.beside, within=90)
    assert (found.stats.succeeded, found.stats.skipped, found.stats.missed) == (len(all_due), 0, 0)
    assert sorted(due(one) for one in sink.at(path)) == all_due
    assert slow.most in (2, 3)


async def overdue(
    fleet: Fleet, sink: Sink, slow: Slow, policy: str, grace: int, **concurrency: Any
) -> tuple[str, Job, list[datetime]]:
    """A job each second that fell due sixty times, all of which it is to catch up with."""
    name, now, count = fresh(policy), datetime.now(UTC).replace(microsecond=0), 60
    sink.answers[f"/{name}"] = slow.answer
    began = now - timedelta(seconds=count)
    definition = {
        "schedule": {"every": 1, "anchor": began.isoformat()},
        "ends_at": now.isoformat(),
        "concurrency": {"policy": policy, **concurrency},
        "catch_up": {"policy": "all", "grace": grace},
        "target": {"url": sink.url(f"/{name}")},
    }
    job = await fleet.create(name, definition, cursor=began)
    return f"/{name}", job, [began + timedelta(seconds=n) for n in range(1, count + 1)]


async def test_replace_starts_each_on_time_and_breaks_off_the_one_before(fleet: Fleet, sink: Sink) -> None:
    slow = Slow()
    path, job = await create(fleet, sink, slow, "replace", max_runs=4)
    arrivals = await sink.wait_for(path, 4)
    assert slots(arrivals) == [0, 1, 2, 3]
    assert slow.most == 1
    assert median(after_due(arrivals)) < SLACK
    assert slow.broken_off == [one.key for one in arrivals[:3]]
    rows = await stored(fleet, job, lambda rows: ended(rows, 4))
    assert by_slot(rows) == [("replaced", "replaced", 1)] * 3 + [("succeeded", None, 1)]
    found = await seen(job, lambda found: found.status == "completed")
    assert (found.stats.runs, found.stats.succeeded, found.stats.consecutive_failures) == (4, 1, 0)


async def test_replace_ends_a_run_that_waits_for_its_retry(fleet: Fleet, sink: Sink) -> None:
    async def fail(_: Arrival, before: int) -> web.Response:
        return web.Response(status=500)

    name = fresh("replace")
    sink.answers[f"/{name}"] = fail
    job = await fleet.create(
        name,
        {
            "schedule": {"every": 2},
            "concurrency": {"policy": "replace"},
            "retry": {"initial_interval": 30, "jitter": 0},
            "target": {"url": sink.url(f"/{name}")},
        },
    )
    arrivals = await sink.wait_for(f"/{name}", 3)
    assert slots(arrivals) == [0, 1, 2]
    rows = await stored(fleet, job, lambda rows: ended(rows, 2))
    assert by_slot(rows)[:2] == [("replaced", "replaced", 1)] * 2


async def test_replace_gets_over_what_fell_due_while_nobody_worked(fleet: Fleet, sink: Sink) -> None:
    """Several are due at once: each takes the place of the one before, which may not have begun to be
    scheduled then, and the newest runs."""
    slow = Slow(seconds=0.2)
    name, now = fresh("behind"), datetime.now(UTC).replace(microsecond=0)
    sink.answers[f"/{name}"] = slow.answer
    job = await fleet.create(
        name,
        {
            "schedule": {"every": EVERY.total_seconds(), "anchor": (now - 5 * EVERY).isoformat()},
            "concurrency": {"policy": "replace"},
            "target": {"url": sink.url(f"/{name}")},
        },
        cursor=now - 5 * EVERY,
    )
    async with asyncio.timeout(20):
        while not any(due(one) > now for one in sink.at(f"/{name}")):
            await asyncio.sleep(0.05)
    rows = await stored(fleet, job, lambda rows: sum(row.count for row in rows) >= 5)
    overdue = {row.scheduled_time: (row.outcome, row.reason) for row in rows if row.scheduled_time <= now}
    assert sorted(overdue) == [now - EVERY * back for back in range(4, -1, -1)]
    assert overdue[now][0] == "succeeded"
    assert {outcome for outcome, _ in overdue.values()} <= {"replaced", "succeeded"}
    assert slow.most == 1
