"""A pause and a deletion reach the runs beside a job's loop that were not sent yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.fleet import Fleet, fresh
from tests.sink import Sink
from tests.workflows.asking import Job, backfill, delete, pause, resume, seen, stored
from tests.workflows.grouped import Group

UPDATES = True

ALLOW = {"policy": "allow", "limit": 4}
DAY = datetime(2026, 11, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("change", "outcome", "reason"), [(pause, "skipped", "paused"), (delete, "cancelled", "deleted")]
)
async def test_what_waits_for_its_group_does_not_run(
    fleet: Fleet, sink: Sink, change: Callable[[Job], Any], outcome: str, reason: str
) -> None:
    group = await Group.made(fleet, sink)
    _, gate = await group.holder()
    path = f"/waits-{reason}"
    job = await group.job(path, schedule={"every": 1}, concurrency={**ALLOW, "group": group.name})
    await group.until(lambda found: found.queued >= 3)
    await change(job)
    await group.until(lambda found: found.queued == 0)
    gate.open()
    await group.is_empty()
    found = await stored(fleet, job, lambda found: len(found) >= 3)
    assert {(row.outcome, row.reason) for row in found} <= {(outcome, reason), ("skipped", reason)}
    assert sink.at(path) == []


async def test_a_backfill_takes_back_what_a_pause_met_in_the_line(fleet: Fleet, sink: Sink) -> None:
    """Each occurrence runs once, after the resume; those begun before the pause are counted once."""
    group = await Group.made(fleet, sink)
    _, gate = await group.holder()
    definition = group.definition(
        "/filled",
        schedule={"every": 60, "anchor": DAY.isoformat()},
        ends_at=(DAY + timedelta(days=1)).isoformat(),
        concurrency={**ALLOW, "group": group.name},
    )
    job = await fleet.create(fresh("filled"), definition)
    await backfill(job, DAY, DAY + timedelta(minutes=6), total=6, max_concurrent=3)
    await group.until(lambda found: found.queued == 3)
    await pause(job)
    await group.until(lambda found: found.queued == 0)
    gate.open()
    await group.is_empty()
    assert sink.at("/filled") == []
    await resume(job)
    found = await seen(job, lambda found: found.backfills[0].status == "done")
    one = found.backfills[0]
    assert (one.started, one.succeeded, one.cancelled) == (6, 6, 0)
    assert Counter(arrival.key for arrival in sink.at("/filled")).most_common(1)[0][1] == 1
    assert len(sink.at("/filled")) == 6
