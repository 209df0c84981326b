"""``forbid``, and the bounds of a schedule: which occurrences run, and one row for those that do not."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime, timedelta

from aiohttp import web
from temporalio.client import Client

from infra.settings import Settings
from tests.fleet import Fleet, fresh
from tests.sink import Arrival, Sink
from tests.workflows.asking import at, ended, from_now, seen, stored, told, trigger

EVERY = timedelta(seconds=2)


def due(arrival: Arrival) -> datetime:
    return datetime.fromisoformat(arrival.headers["carillon-scheduled-time"])


async def longer_than_the_interval(arrival: Arrival, _: int) -> web.Response:
    until = due(arrival) + EVERY * 1.25
    await asyncio.sleep(max(0.0, (until - from_now(0)).total_seconds()))
    return web.Response(text="ok")


async def test_a_run_longer_than_the_interval_takes_every_second_occurrence(fleet: Fleet, sink: Sink) -> None:
    """The grid stays, and each skipped occurrence has its row."""
    sink.answers["/long"] = longer_than_the_interval
    job = await fleet.create(
        fresh("long"), {"schedule": {"every": EVERY.total_seconds()}, "target": {"url": sink.url("/long")}}
    )
    arrivals = await sink.wait_for("/long", 2)
    first = due(arrivals[0])
    assert [due(one) - first for one in arrivals] == [timedelta(0), 2 * EVERY]
    rows = await stored(fleet, job, lambda rows: len([row for row in rows if row.outcome == "skipped"]) >= 1)
    skipped = [row for row in rows if row.outcome == "skipped"]
    assert told(skipped[:1]) == [("skipped", "overlap", 1)]
    assert skipped[0].scheduled_time == first + EVERY
    assert (await seen(job, lambda found: found.stats.skipped >= 1)).stats.missed == 0


async def test_an_occurrence_due_during_a_manual_run_runs_after_it(fleet: Fleet, sink: Sink) -> None:
    opened = asyncio.Event()

    async def hang_once(_: Arrival, before: int) -> web.Response:
        if before == 0:
            await opened.wait()
        return web.Response(text="ok")

    sink.answers["/behind"] = hang_once
    when = from_now(1)
    job = await fleet.create(
        fresh("behind"), {"schedule": {"at": at(when)}, "target": {"url": sink.url("/behind")}}
    )
    await trigger(job)
    await sink.wait_for("/behind", 1)
    await asyncio.sleep(max(0.0, (when - from_now(0)).total_seconds()) + 0.2)
    opened.set()
    _, second = await sink.wait_for("/behind", 2)
    assert second.headers["carillon-trigger"] == "schedule"
    found = await seen(job, lambda found: found.status == "completed")
    assert (found.stats.succeeded, found.stats.skipped, found.stats.missed) == (2, 0, 0)


async def test_runs_end_with_max_runs_which_skips_do_not_use_up_and_with_ends_at(
    fleet: Fleet, sink: Sink
) -> None:
    async def long_once(arrival: Arrival, before: int) -> web.Response:
        if before == 0:
            late = (from_now(0) - due(arrival)).total_seconds()
            await asyncio.sleep(math.ceil(late) + 0.4 - late)  # beyond the instant that is next
        return web.Response(text="ok")

    sink.answers["/two"] = long_once
    two = await fleet.create(
        fresh("two"), {"schedule": {"every": 1}, "max_runs": 2, "target": {"url": sink.url("/two")}}
    )
    found = await seen(two, lambda found: found.status == "completed")
    assert (found.scheduled_runs, found.stats.succeeded, len(sink.at("/two"))) == (2, 2, 2)
    assert found.stats.skipped >= 1
    ends_at = from_now(2).replace(microsecond=0)
    until = await fleet.create(
        fresh("until"),
        {"schedule": {"every": 1}, "ends_at": at(ends_at), "target": {"url": sink.url("/until")}},
    )
    await seen(until, lambda found: found.status == "completed")
    assert all(due(one) <= ends_at for one in sink.at("/until"))


async def test_a_one_off_without_catch_up_is_missed_when_it_comes_too_late(fleet: Fleet, sink: Sink) -> None:
    when = from_now(-300)
    schedule = {"at": at(when)}
    none = await fleet.create(
        fresh("none"),
        {"schedule": schedule, "catch_up": {"policy": "none"}, "target": {"url": sink.url("/none")}},
        cursor=when - timedelta(seconds=1),
    )
    found = await seen(none, lambda found: found.status == "completed")
    assert (found.stats.missed, found.stats.runs) == (1, 0)
    assert told(await stored(fleet, none, bool)) == [("missed", None, 1)]
    await fleet.create(
        fresh("latest"), {"schedule": schedule, "target": {"url": sink.url("/latest")}},
        cursor=when - timedelta(seconds=1),
    )  # fmt: skip
    await sink.wait_for("/latest", 1)
    assert sink.at("/none") == []


async def test_without_any_grace_a_job_runs_on_time(fleet: Fleet, sink: Sink) -> None:
    """The moment that waking up takes makes no run late."""
    job = await fleet.create(
        fresh("strict"),
        {
            "schedule": {"at": at(from_now(2.5))},
            "catch_up": {"policy": "none", "grace": 0},
            "target": {"url": sink.url("/strict")},
        },
    )
    await sink.wait_for("/strict", 1)
    assert (await seen(job, lambda found: found.stats.runs == 1)).stats.missed == 0


async def test_retries_never_move_the_schedule(fleet: Fleet, sink: Sink) -> None:
    """A run that waits for its retry is active: what falls due meanwhile is skipped, the grid stays, and
    when the attempts are used up the next slot runs as if nothing had been."""

    async def fail(_: Arrival, before: int) -> web.Response:
        return web.Response(status=500)

    sink.answers["/failing"] = fail
    definition = {
        "schedule": {"every": EVERY.total_seconds()},
        "retry": {"initial_interval": 2.2, "max_attempts": 2, "jitter": 0},
        "target": {"url": sink.url("/failing")},
    }
    job = await fleet.create(fresh("failing"), definition)
    arrivals = await sink.wait_for("/failing", 3)
    first = due(arrivals[0])
    assert [(due(one) - first) / EVERY for one in arrivals] == [0, 0, 2]
    assert [one.headers["carillon-attempt"] for one in arrivals] == ["1", "2", "1"]
    rows = await stored(fleet, job, lambda rows: any(row.outcome == "skipped" for row in rows))
    ends = {(row.scheduled_time - first) / EVERY: (row.outcome, row.reason) for row in rows}
    assert (ends[0], ends[1]) == (("dead_lettered", "max_attempts"), ("skipped", "overlap"))


async def test_two_jobs_with_one_target_and_one_schedule_are_two_jobs(fleet: Fleet, sink: Sink) -> None:
    """What overlaps is decided by job, not by what it calls: both run, side by side."""
    both = asyncio.Event()

    async def wait_for_the_other(_: Arrival, before: int) -> web.Response:
        if before == 1:
            both.set()
        await both.wait()
        return web.Response(text="ok")

    sink.answers["/shared"] = wait_for_the_other
    when = at(from_now(2).replace(microsecond=0))
    definition = {"schedule": {"at": when}, "target": {"url": sink.url("/shared")}}
    jobs = [await fleet.create(fresh("twin"), definition) for _ in range(2)]
    one, other = await sink.wait_for("/shared", 2)
    assert one.key != other.key
    assert due(one) == due(other)
    for job in jobs:
        rows = await stored(fleet, job, lambda rows: ended(rows))
        assert told(rows) == [("succeeded", None, 1)]


async def test_a_run_that_waits_for_a_place_is_not_started_twice(
    temporal_client: Client, temporal_settings: Settings, sink: Sink
) -> None:
    """Nobody runs it yet, and it is active all the same: what falls due meanwhile waits or is skipped, and
    when there are places again the runs come one by one."""
    opened, at_work, most = asyncio.Event(), 0, 0

    async def hog(_: Arrival, before: int) -> web.Response:
        await opened.wait()
        return web.Response(text="ok")

    async def one_by_one(_: Arrival, before: int) -> web.Response:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.2)
        at_work -= 1
        return web.Response(text="ok")

    sink.answers |= {"/hog": hog, "/pending": one_by_one}
    fleet = await Fleet(
        temporal_client, temporal_settings.model_copy(update={"max_concurrent_runs": 1})
    ).start()
    try:
        await fleet.create(fresh("hog"), {"schedule": {"in": 0}, "target": {"url": sink.url("/hog")}})
        await sink.wait_for("/hog", 1)
        definition = {"schedule": {"every": 1}, "target": {"url": sink.url("/pending")}}
        job = await fleet.create(fresh("pending"), definition)
        await asyncio.sleep(3.5)
        assert sink.at("/pending") == []
        opened.set()
        arrivals = await sink.wait_for("/pending", 4)
        slots = [due(one) for one in arrivals]
        assert slots == sorted(set(slots))
        assert most == 1
        rows = await stored(fleet, job, lambda rows: ended(rows, 4))
        ends = sum(row.count for row in rows if slots[0] <= row.scheduled_time <= slots[3])
        assert ends == (slots[3] - slots[0]).total_seconds() + 1
    finally:
        await fleet.stop()
