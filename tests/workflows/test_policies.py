"""A job that takes longer than its interval, under each policy: exactly the documented sequence."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from tests.fleet import TENANT, Fleet, fresh
from tests.sink import Arrival, Sink
from tests.workflows.asking import Job, ended, seen, skip, stored, told
from workflows.contracts import names
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import JobState
from workflows.contracts.planning import PlannedOccurrence
from workflows.contracts.records import ExecutionRow
from workflows.domain import job_sources

EVERY = timedelta(seconds=2)
TAKES = 3.0
SLACK = 1.9
"""What a start may be late by on a busy machine, less than the interval; order and counts are exact."""


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    sink = await Sink(notices_hang_ups=True).start()
    yield sink
    await sink.stop()


@dataclass
class Slow:
    """A target that takes its time, and knows who is connected."""

    seconds: float = TAKES
    open: int = 0
    most: int = 0
    broken_off: list[str] = field(default_factory=list)

    async def answer(self, arrival: Arrival, _: int) -> web.Response:
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.broken_off.append(arrival.key)
            raise
        finally:
            self.open -= 1
        return web.Response(text="ok")


async def create(fleet: Fleet, sink: Sink, slow: Slow, policy: str, **fields: Any) -> tuple[str, Job]:
    name = fresh(policy)
    sink.answers[f"/{name}"] = slow.answer
    concurrency = {"policy": policy, **fields.pop("concurrency", {})}
    definition = {
        "schedule": {"every": EVERY.total_seconds()},
        "concurrency": concurrency,
        "target": {"url": sink.url(f"/{name}")},
        **fields,
    }
    return f"/{name}", await fleet.create(name, definition)


def due(arrival: Arrival) -> datetime:
    return datetime.fromisoformat(arrival.headers["carillon-scheduled-time"])


def slots(arrivals: list[Arrival]) -> list[int]:
    """Which occurrences ran, in the order of their starts, counted from the first."""
    first = due(arrivals[0])
    return [round((due(one) - first) / EVERY) for one in arrivals]


def after_due(arrivals: list[Arrival]) -> list[float]:
    """Seconds from due to start."""
    return [one.at - due(one).timestamp() for one in arrivals]


def by_slot(rows: list[ExecutionRow]) -> list[tuple[str, str | None, int]]:
    return told(sorted(rows, key=lambda row: row.scheduled_time))


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
    assert all(TAKES <= after - before < TAKES + SLACK for before, after in itertools.pairwise(starts))
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


async def test_allow_starts_each_on_time(fleet: Fleet, sink: Sink) -> None:
    slow = Slow()
    path, job = await create(fleet, sink, slow, "allow", max_runs=4)
    arrivals = await sink.wait_for(path, 4)
    assert slots(arrivals) == [0, 1, 2, 3]
    assert slow.most == 2
    assert max(after_due(arrivals)) < SLACK
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


async def test_replace_starts_each_on_time_and_breaks_off_the_one_before(fleet: Fleet, sink: Sink) -> None:
    slow = Slow()
    path, job = await create(fleet, sink, slow, "replace", max_runs=4)
    arrivals = await sink.wait_for(path, 4)
    assert slots(arrivals) == [0, 1, 2, 3]
    assert slow.most == 1
    assert max(after_due(arrivals)) < SLACK
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
