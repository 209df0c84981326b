"""Changes at random instants, failing and slow targets, short histories: every occurrence has one end."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from temporalio.client import Client, WorkflowUpdateFailedError

from infra.settings import Settings
from tests.fleet import Fleet, fresh, view
from tests.sink import Arrival, Sink
from tests.workflows.asking import Job, at, edit, from_now, impatient_fleet, pause, resume, seen, trigger

UPDATES = True

JOBS = 5
CHANGES = 14
SECOND = timedelta(seconds=1)


async def moody(arrival: Arrival, _: int) -> web.Response:
    """Slow, failing or fine: which is decided by the attempt's id."""
    rng = random.Random(arrival.execution_id)
    await asyncio.sleep(rng.choice([0, 0, 0.1, 0.6, 1.7]))
    return web.Response(status=rng.choice([200, 200, 200, 500, 400]))


def ends(fleet: Fleet, job: Job) -> Counter[datetime] | str:
    """How many ends each occurrence of the schedule has in the history; or which row's count is not that of
    the instants from its first to its last that have no row of their own."""
    rows = fleet.recorder.executions(job.id.rpartition("/")[2]).values()
    rows = [row for row in rows if row.trigger == "schedule" and row.ended_at is not None]
    found = Counter(row.scheduled_time for row in rows if row.last_scheduled_time is None)
    alone = set(found)
    for row in rows:
        if row.last_scheduled_time is not None:
            span = int((row.last_scheduled_time - row.scheduled_time) / SECOND)
            covered = {row.scheduled_time + SECOND * n for n in range(span + 1)} - alone
            if len(covered) != row.count:
                return f"{row.key} counts {row.count}, not {len(covered)}"
            found.update(covered)
    return found


async def change_at_random(job: Job, definition: dict[str, Any], rng: random.Random) -> None:
    for number in range(CHANGES):
        await asyncio.sleep(rng.uniform(0, 0.6))
        change = rng.choice(["pause", "resume", "resume", "edit", "trigger", "trigger"])
        with suppress(WorkflowUpdateFailedError):  # a manual run beside an active one
            if change == "pause":
                await pause(job)
            elif change == "resume":
                await resume(job)
            elif change == "edit":
                await edit(job, {**definition, "description": f"{number}"})
            else:
                await trigger(job, f"r{number}")


async def test_every_occurrence_has_one_end_whatever_is_asked_meanwhile(
    temporal_client: Client, temporal_settings: Settings, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live(number: int) -> None:
        anchor = from_now(0).replace(microsecond=0)
        definition = {
            "schedule": {"every": 1, "anchor": at(anchor)},
            "retry": {"initial_interval": 0.5, "jitter": 0, "max_attempts": 3},
            "target": {"url": sink.url(f"/{number}")},
        }
        sink.answers[f"/{number}"] = moody
        job = await fleet.create(fresh("moody"), definition, cursor=anchor)
        await change_at_random(job, definition, random.Random(number))
        await resume(job)
        runs = (await view(job)).stats.runs
        await seen(job, lambda found: found.stats.runs > runs)
        await pause(job)
        await seen(job, lambda found: found.current is None and not found.waiting)
        await resume(job)  # counts what passed
        await seen(job, lambda found: bool(found.plan))
        await pause(job)
        last = await seen(job, lambda found: found.current is None)
        wanted = Counter(anchor + SECOND * n for n in range(1, int((last.cursor - anchor) / SECOND) + 1))
        until = time.monotonic() + 60
        while (found := ends(fleet, job)) != wanted and time.monotonic() < until:
            await asyncio.sleep(0.1)
        assert found == wanted
        rows = fleet.recorder.executions(job.id.rpartition("/")[2]).values()
        counts = Counter[str]()
        for row in rows:
            counts[row.outcome] += row.count
        assert counts["skipped"] == last.stats.skipped
        assert counts["missed"] == last.stats.missed
        assert counts["succeeded"] == last.stats.succeeded
        assert counts["dead_lettered"] == last.stats.dead_lettered
        sent = Counter(one.execution_id for one in sink.at(f"/{number}"))
        assert set(sent.values()) == {1}

    async with impatient_fleet(temporal_client, temporal_settings, monkeypatch, RUNS_PER_HISTORY=3) as fleet:
        await asyncio.gather(*(live(number) for number in range(JOBS)))
