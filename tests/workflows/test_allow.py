"""Runs side by side, each on time, as many as the limit says."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from statistics import median

from aiohttp import web

from tests.fleet import TENANT, Fleet, fresh
from tests.sink import Arrival, Sink
from tests.workflows.asking import seen, skip, stored
from tests.workflows.slow import EVERY, SLACK, Slow, after_due, create, due, slots
from workflows.contracts import names
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import JobState
from workflows.contracts.planning import PlannedOccurrence
from workflows.domain import job_sources

# Runs beside the loop are read while they start, for which the SDK needs a cache (see conftest.py).
UPDATES = True


async def test_allow_starts_each_on_time(fleet: Fleet, sink: Sink) -> None:
    slow = Slow()
    path, job = await create(fleet, sink, slow, "allow", max_runs=4)
    arrivals = await sink.wait_for(path, 4)
    assert slots(arrivals) == [0, 1, 2, 3]
    assert slow.most == 2
    assert median(after_due(arrivals)) < SLACK
    found = await seen(job, lambda found: found.status == "completed" and not found.beside)
    assert (found.stats.runs, found.stats.succeeded, found.stats.skipped) == (4, 4, 0)


async def test_allow_keeps_in_line_what_its_limit_leaves_no_place_for(fleet: Fleet, sink: Sink) -> None:
    slow = Slow(seconds=5)
    path, job = await create(fleet, sink, slow, "allow", concurrency={"limit": 2}, max_runs=5)
    arrivals = await sink.wait_for(path, 5, within=40)
    assert slots(arrivals) == [0, 1, 2, 3, 4]
    assert slow.most == 2
    found = await seen(job, lambda found: found.status == "completed" and not found.beside)
    assert (found.stats.succeeded, found.stats.skipped, found.stats.missed) == (5, 0, 0)


async def test_allow_starts_the_next_beside_one_that_waits_for_its_retry(fleet: Fleet, sink: Sink) -> None:
    """Retries never move the schedule: the grid stays, and both exist."""

    async def fail_once(_: Arrival, before: int) -> web.Response:
        return web.Response(status=500 if before == 0 else 200)

    name = fresh("allow")
    sink.answers[f"/{name}"] = fail_once
    job = await fleet.create(
        name,
        {
            "schedule": {"every": 2},
            "concurrency": {"policy": "allow"},
            "retry": {"initial_interval": 5, "jitter": 0},
            "max_runs": 4,
            "target": {"url": sink.url(f"/{name}")},
        },
    )
    arrivals = await sink.wait_for(f"/{name}", 5)
    again = [one for one in arrivals if one.execution_id.endswith(":2")]
    assert slots([one for one in arrivals if one not in again]) == [0, 1, 2, 3]
    assert [one.key for one in again] == [arrivals[0].key]
    found = await seen(job, lambda found: found.status == "completed" and not found.beside)
    assert (found.stats.runs, found.stats.succeeded) == (4, 4)


async def test_a_held_run_is_skipped_while_another_is_in_flight_beside_it(fleet: Fleet, sink: Sink) -> None:
    """Only what has fired itself cannot be skipped; the other goes on, and is named."""
    name, both, gate = fresh("allow"), asyncio.Event(), asyncio.Event()

    async def answer(_: Arrival, before: int) -> web.Response:
        if before == 1:
            both.set()
        await (gate if before == 1 else both).wait()
        return web.Response()

    sink.answers[f"/{name}"] = answer
    definition = {"schedule": {"every": 5}, "concurrency": {"policy": "allow"}, "max_runs": 3}
    job = await fleet.create(name, {**definition, "target": {"url": sink.url(f"/{name}")}})
    _, beside = await sink.wait_for(f"/{name}", 2)
    next_ = due(beside) + timedelta(seconds=5)
    await seen(job, lambda found: found.current is not None and found.current.scheduled_time == next_)
    changed = await skip(job, next_)
    assert [one.key for one in changed.in_flight] == [beside.key]
    gate.set()
    first, _, third = await sink.wait_for(f"/{name}", 3)
    assert due(third) - due(first) == timedelta(seconds=15)


async def test_what_was_asked_to_be_skipped_does_not_start_beside_a_run(fleet: Fleet, sink: Sink) -> None:
    """The occurrence falls due while the one before it runs, which the plan has not gone past yet."""
    path, job = await create(fleet, sink, Slow(), "allow")
    [first] = await sink.wait_for(path, 1)
    await skip(job, due(first) + EVERY)
    arrivals = await sink.wait_for(path, 2)
    assert slots(arrivals) == [0, 2]
    rows = await stored(fleet, job, lambda rows: any(row.outcome == "skipped" for row in rows))
    left_out = [row for row in rows if row.outcome == "skipped"]
    assert [(row.scheduled_time, row.reason) for row in left_out] == [(due(first) + EVERY, "asked")]


async def test_a_run_beside_that_comes_too_late_is_missed_and_gives_its_place_back(
    fleet: Fleet, sink: Sink
) -> None:
    """All workers were away between its start and its first chance to fire: it has one row, is counted once,
    and the job knows that it is over."""
    name, now = fresh("beside-late"), datetime.now(UTC).replace(microsecond=0)
    due_at = now - timedelta(minutes=5)
    definition = {
        "schedule": {"cron": "0 0 1 1 *"},
        "concurrency": {"policy": "allow"},
        "target": {"url": sink.url(f"/{name}")},
    }
    due = PlannedOccurrence(scheduled_time=due_at, fires_at=due_at, not_after=now - EVERY)
    state = JobState(
        tenant=TENANT, job=name, ref=name, definition=JobDefinition.model_validate(definition),
        created_at=now, updated_at=now, cursor=due_at - EVERY,
    )  # fmt: skip
    aside = job_sources.alone_for(state, due, now)
    assert aside.run is not None
    row = job_sources.beside_row(state, aside.run)
    job = await fleet.create(name, definition, beside=[row], scheduled_runs=1)
    await seen(job, lambda found: len(found.beside) == 1)
    run_id = names.run_workflow_id(TENANT, name, names.run_name(row.key))
    run = await fleet.client.start_workflow(names.RUN_WORKFLOW, aside, id=run_id, task_queue=names.MAIN_QUEUE)
    await run.result()
    found = await seen(job, lambda found: not found.beside)
    assert (found.stats.missed, found.stats.runs, sink.at(f"/{name}")) == (1, 0, [])
    rows = await stored(fleet, job, lambda rows: bool(rows))
    assert [(row.outcome, row.count, row.scheduled_time) for row in rows] == [("missed", 1, due_at)]
