"""Backfills: each occurrence once, in the background of the schedule, until done or cancelled."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from temporalio.client import Client

from infra.settings import Settings
from tests.fleet import TENANT, Fleet, fresh, view
from tests.sink import Arrival, Sink
from tests.workflows.asking import (
    Gate,
    Job,
    answers,
    backfill,
    cancel_backfill,
    delete,
    edit,
    impatient_fleet,
    pause,
    refusal,
    resume,
    seen,
)
from workflows.contracts import failures, names
from workflows.contracts.backfill import Backfill
from workflows.contracts.job import JobView
from workflows.contracts.records import ExecutionRow, Record, sequence

UPDATES = True

DAY = datetime(2026, 11, 2, tzinfo=UTC)
"""Jobs of these tests have an occurrence each minute since then, and none soon."""


def minute(number: int) -> datetime:
    return DAY + timedelta(minutes=number)


def definition(sink: Sink, path: str, **more: Any) -> dict[str, Any]:
    return {
        "schedule": {"every": 60, "anchor": DAY.isoformat()},
        "ends_at": minute(9999).isoformat(),
        "target": {"url": sink.url(path)},
        "retry": {"max_attempts": 1},
        **more,
    }


def own_key(job: Job, number: int) -> str:
    return names.scheduled_key(TENANT, job.id.rpartition("/")[2], minute(number))


def first(found: JobView) -> Backfill:
    return found.backfills[0]


def done(found: JobView) -> bool:
    return bool(found.backfills) and first(found).status == "done"


def counts(one: Backfill) -> tuple[int, int, int, int]:
    return one.started, one.succeeded, one.dead_lettered, one.cancelled


def record(fleet: Fleet, job: str, key: str, number: int, outcome: str, attempt: int = 1) -> None:
    """What the history knows of an occurrence, or of a rerun of it."""
    row = ExecutionRow.model_validate(
        {
            "key": key,
            "scheduled_time": minute(number),
            "fires_at": minute(number),
            "outcome": outcome,
            "seq": sequence(attempt, 1, 5),
        }
    )
    fleet.recorder.records.append(Record(tenant=TENANT, ref=job, execution=row))


async def test_missing_runs_the_gaps_under_their_own_keys(fleet: Fleet, sink: Sink) -> None:
    """What succeeded under any key is left out; what failed goes on with its next attempt."""
    job_id = fresh("gaps")
    for number, suffix, outcome, attempt in (
        (1, "", "succeeded", 1),
        (2, "+r1", "succeeded", 1),
        (3, "+b7", "succeeded", 1),
        (3, "", "dead_lettered", 2),
        (4, "", "dead_lettered", 5),
    ):
        key = names.scheduled_key(TENANT, job_id, minute(number)) + suffix
        record(fleet, job_id, key, number, outcome, attempt)
    job = await fleet.create(job_id, definition(sink, "/gaps"))
    accepted = await backfill(job, minute(0), minute(6), total=3)
    assert (accepted.backfill.number, accepted.backfill.status) == (1, "running")
    found = await seen(job, done)
    assert counts(first(found)) == (3, 3, 0, 0)
    arrivals = sink.at("/gaps")
    assert [one.execution_id for one in arrivals] == [
        own_key(job, 0) + ":1", own_key(job, 4) + ":6", own_key(job, 5) + ":1"
    ]  # fmt: skip
    assert {one.headers["carillon-trigger"] for one in arrivals} == {"backfill"}
    assert found.stats.succeeded == 3
    rows = fleet.recorder.executions(job_id)
    assert (rows[own_key(job, 4)].outcome, rows[own_key(job, 4)].trigger) == ("succeeded", "backfill")


async def test_all_runs_every_occurrence_under_keys_of_the_backfill(fleet: Fleet, sink: Sink) -> None:
    job = await fleet.create(fresh("all"), definition(sink, "/all"))
    for number in (1, 2):
        await backfill(job, minute(0), minute(3), only="all", total=3)
        await seen(job, lambda found, n=number: found.stats.runs == 3 * n)  # type: ignore[misc]
    keys = [one.key for one in sink.at("/all")]
    assert keys == [f"{own_key(job, number)}+b{n}" for n in (1, 2) for number in range(3)]


async def test_a_call_is_accepted_once_and_refusals_say_why(fleet: Fleet, sink: Sink) -> None:
    job = await fleet.create(fresh("refusals"), definition(sink, "/refusals"))
    await pause(job)
    numbers = [
        (await backfill(job, minute(0), minute(2), operation=name)).backfill.number
        for name in ("one", "one", "two")
    ]
    assert numbers == [1, 1, 2]
    parallel = backfill(job, minute(0), minute(2), max_concurrent=2)
    assert await refusal(parallel) == (failures.NOT_PARALLEL, "forbid")
    assert (await refusal(cancel_backfill(job, 3)))[0] == failures.NO_SUCH_BACKFILL
    for _ in range(8):
        await backfill(job, minute(0), minute(2))
    assert (await refusal(backfill(job, minute(0), minute(2))))[0] == failures.TOO_MANY_BACKFILLS
    for number in range(1, 11):
        await cancel_backfill(job, number)
    found = await view(job)
    assert [one.status for one in found.backfills] == ["cancelled"] * 10
    assert (await cancel_backfill(job, 1)).in_flight == [], "it has ended already"


async def test_a_cancelled_backfill_begins_nothing_more(fleet: Fleet, sink: Sink) -> None:
    """What is in flight is named, and finishes."""
    gate = Gate(sink, "/cancelled")
    job = await fleet.create(fresh("cancelled"), definition(sink, "/cancelled"))
    await backfill(job, minute(0), minute(9), total=9)
    [arrival] = await sink.wait_for("/cancelled", 1)
    changed = await cancel_backfill(job)  # whose wait for a stop would end as ``stopping``
    assert [(one.key, one.state) for one in changed.in_flight] == [(arrival.key, "in_flight")]
    gate.open()
    found = await seen(job, lambda found: first(found).succeeded == 1)
    assert (first(found).status, counts(first(found))) == ("cancelled", (1, 1, 0, 0))
    await asyncio.sleep(0.3)
    assert len(sink.at("/cancelled")) == 1


async def test_a_pause_holds_a_backfill_up_and_a_deletion_ends_it(fleet: Fleet, sink: Sink) -> None:
    gate = Gate(sink, "/held-up")
    job = await fleet.create(fresh("held-up"), definition(sink, "/held-up"))
    await backfill(job, minute(0), minute(4), total=4)
    await sink.wait_for("/held-up", 1)
    assert len((await pause(job)).in_flight) == 1
    gate.open()
    await seen(job, lambda found: first(found).succeeded == 1)
    await asyncio.sleep(0.3)
    assert len(sink.at("/held-up")) == 1
    await resume(job)
    found = await seen(job, done)
    assert counts(first(found)) == (4, 4, 0, 0)
    await pause(job)
    await backfill(job, minute(0), minute(4), total=4)
    deleted = await delete(job)
    assert [(one.status, one.reason) for one in deleted.view.backfills] == [
        ("done", None), ("cancelled", "deleted")
    ]  # fmt: skip


async def test_a_dead_letter_counts_and_the_backfill_goes_on(fleet: Fleet, sink: Sink) -> None:
    answers(sink, "/dead", 200, 500, 200)
    job = await fleet.create(fresh("dead"), definition(sink, "/dead"))
    await backfill(job, minute(0), minute(3), total=3)
    found = await seen(job, done)
    assert counts(first(found)) == (3, 2, 1, 0)


async def test_an_edit_of_the_schedule_leaves_what_was_asked_for(fleet: Fleet, sink: Sink) -> None:
    """It runs by the newest definition, at the occurrences of the schedule that was counted."""
    job = await fleet.create(fresh("edited"), definition(sink, "/before"))
    await pause(job)
    await backfill(job, minute(0), minute(3), total=3)
    hourly = {"every": 3600, "anchor": DAY.isoformat()}
    await edit(job, definition(sink, "/after", schedule=hourly))
    await resume(job)
    await seen(job, done)
    assert [one.key for one in sink.at("/after")] == [own_key(job, number) for number in range(3)]


async def test_a_database_that_is_away_holds_up_the_backfill_and_nothing_else(
    fleet: Fleet, sink: Sink
) -> None:
    fleet.recorder.away = True
    job_id = fresh("db-away")
    job = await fleet.create(job_id, {"schedule": {"every": 1}, "target": {"url": sink.url("/db-away")}})
    since = datetime.now(UTC)
    await sink.wait_for("/db-away", 1)
    await backfill(job, since - timedelta(seconds=1), datetime.now(UTC) - timedelta(seconds=1))
    await sink.wait_for("/db-away", 3)
    assert counts(first(await view(job))) == (0, 0, 0, 0)
    fleet.recorder.away = False
    await seen(job, done)
    keys = [one.key for one in sink.at("/db-away")]
    assert len(keys) == len(set(keys)), "what ran meanwhile has succeeded, though nobody could write it down"


async def test_what_ran_beside_the_job_is_not_run_again_before_it_is_written(
    fleet: Fleet, sink: Sink
) -> None:
    """Its records wait in a workflow of its own; the database is back, and does not know of it yet."""

    async def slow(arrival: Arrival, _: int) -> web.Response:
        await asyncio.sleep(1.5)
        first_ = arrival.key.endswith(begin.strftime("%H:%M:%SZ"))
        return web.Response(status=400 if first_ else 200)

    begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    sink.answers["/beside"] = slow
    job_id = fresh("beside")
    job = await fleet.create(
        job_id,
        {
            "schedule": {"every": 1, "anchor": begin.isoformat()},
            "starts_at": begin.isoformat(),
            "max_runs": 4,
            "concurrency": {"policy": "allow"},
            "target": {"url": sink.url("/beside")},
        },
    )
    fleet.recorder.away = True
    await seen(job, lambda found: found.stats.runs == 4 and not found.beside)
    assert len(sink.at("/beside")) == 4
    fleet.recorder.away = False
    await backfill(job, begin, begin + timedelta(seconds=4))
    found = await seen(job, done)
    assert counts(first(found)) == (1, 0, 1, 0)
    assert [one.execution_id for one in sink.at("/beside")[4:]] == [
        f"{names.scheduled_key(TENANT, job_id, begin)}:2"
    ]


async def test_what_waits_in_line_is_not_started_a_second_time(fleet: Fleet, sink: Sink) -> None:
    """The loop has not settled it: the backfill waits for that, and then finds that it has succeeded."""
    gate = Gate(sink, "/in-line")
    job = await fleet.create(
        fresh("in-line"),
        {
            "schedule": {"every": 1},
            "concurrency": {"policy": "queue"},
            "target": {"url": sink.url("/in-line")},
        },
    )
    [arrival] = await sink.wait_for("/in-line", 1)
    await asyncio.sleep(2.2)
    until = datetime.now(UTC)
    begin = datetime.fromisoformat(arrival.headers["carillon-scheduled-time"])
    await backfill(job, begin, until)
    gate.open()
    found = await seen(job, done)
    assert counts(first(found)) == (0, 0, 0, 0)
    due = [datetime.fromisoformat(one.headers["carillon-scheduled-time"]) for one in sink.at("/in-line")]
    assert len(due) == len(set(due))
    assert len([one for one in due if one < until]) >= 3


async def test_regular_occurrences_are_late_by_at_most_one_run(fleet: Fleet, sink: Sink) -> None:
    taken = 0.25

    async def answer(_: Arrival, before: int) -> web.Response:
        await asyncio.sleep(taken)
        return web.Response(text="ok")

    sink.answers["/regular"] = answer
    job = await fleet.create(
        fresh("regular"),
        {"schedule": {"every": 2, "anchor": DAY.isoformat()}, "target": {"url": sink.url("/regular")}},
    )
    await backfill(job, DAY, DAY + timedelta(seconds=60), total=30)
    found = await seen(job, done)
    assert counts(first(found)) == (30, 30, 0, 0)
    arrivals = sink.at("/regular")
    keys = [one.key for one in arrivals]
    assert len(keys) == len(set(keys))
    regular = [one for one in arrivals if one.headers["carillon-trigger"] == "schedule"]
    late = [
        one.at - datetime.fromisoformat(one.headers["carillon-scheduled-time"]).timestamp() for one in regular
    ]
    assert regular
    assert max(late) < taken + 4, "one run and what a busy machine takes, not all thirty"
    assert found.stats.missed == found.stats.skipped == 0


async def test_a_held_run_makes_way_for_a_backfill_and_is_on_time(fleet: Fleet, sink: Sink) -> None:
    when = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=6)
    job = await fleet.create(
        fresh("way"), {"schedule": {"every": 60, "anchor": (when - timedelta(hours=1)).isoformat()},
                       "target": {"url": sink.url("/way")}},
    )  # fmt: skip
    await seen(job, lambda found: found.current is not None and found.current.outcome == "held")
    await backfill(job, when - timedelta(minutes=9), when - timedelta(minutes=6), total=3)
    arrivals = await sink.wait_for("/way", 4)
    assert [one.headers["carillon-trigger"] for one in arrivals] == ["backfill"] * 3 + ["schedule"]
    assert arrivals[2].at < when.timestamp()
    assert 0 <= arrivals[3].at - when.timestamp() < 10


async def test_a_backfill_outlives_its_worker(fleet: Fleet, sink: Sink) -> None:
    async def answer(_: Arrival, before: int) -> web.Response:
        await asyncio.sleep(0.05)
        return web.Response(text="ok")

    sink.answers["/outlives"] = answer
    job = await fleet.create(fresh("outlives"), definition(sink, "/outlives"))
    await backfill(job, minute(0), minute(20), total=20)
    await sink.wait_for("/outlives", 5)
    await fleet.stop_workers()
    await fleet.start()
    found = await seen(job, done)
    assert counts(first(found)) == (20, 20, 0, 0)
    ids = [one.execution_id for one in sink.at("/outlives")]
    assert set(ids) == {f"{own_key(job, number)}:1" for number in range(20)}


async def test_runs_at_once_under_allow(fleet: Fleet, sink: Sink) -> None:
    """One place of the limit is left for the schedule, whose occurrence comes meanwhile on time."""
    active, most = 0, 0

    async def answer(arrival: Arrival, _: int) -> web.Response:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(0.3 if arrival.headers["carillon-trigger"] == "backfill" else 0)
        active -= 1
        return web.Response(text="ok")

    sink.answers["/at-once"] = answer
    job = await fleet.create(
        fresh("at-once"),
        definition(sink, "/at-once", concurrency={"policy": "allow", "limit": 4}),
    )
    await backfill(job, minute(0), minute(18), total=18, max_concurrent=4)
    found = await seen(job, done)
    assert counts(first(found)) == (18, 18, 0, 0)
    assert {one.key for one in sink.at("/at-once")} == {own_key(job, number) for number in range(18)}
    assert len(sink.at("/at-once")) == 18
    assert 2 <= most <= 3


async def test_a_backfill_goes_on_in_the_next_history(
    temporal_client: Client, temporal_settings: Settings, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over many pages and histories each occurrence is begun once, in order, and progress never falls."""
    seen_so_far: list[tuple[int, ...]] = []
    async with impatient_fleet(temporal_client, temporal_settings, monkeypatch, RUNS_PER_HISTORY=15) as fleet:
        job = await fleet.create(fresh("histories"), definition(sink, "/histories"))
        await backfill(job, minute(0), minute(60), total=60)

        def noted(found: JobView) -> bool:
            seen_so_far.append(counts(first(found)))
            return done(found)

        found = await seen(job, noted)
    assert counts(first(found)) == (60, 60, 0, 0)
    assert [one.key for one in sink.at("/histories")] == [own_key(job, number) for number in range(60)]
    for earlier, later in pairwise(seen_so_far):
        assert all(a <= b for a, b in zip(earlier, later, strict=True))
