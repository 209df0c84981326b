"""A job's life on the real server: on time, retried, stopped, counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from aiohttp import web

from tests.fleet import Fleet, fresh, view
from tests.sink import Arrival, Sink


def due(arrival: Arrival) -> float:
    return datetime.fromisoformat(arrival.headers["carillon-scheduled-time"]).timestamp()


async def test_an_interval_job_delivers_each_occurrence_once_and_never_early(
    fleet: Fleet, sink: Sink
) -> None:
    job_id = fresh("tick")
    job = await fleet.create(job_id, {"schedule": {"every": 2}, "target": {"url": sink.url("/tick")}})
    arrivals = await sink.wait_for("/tick", 4)
    late = [arrival.at - due(arrival) for arrival in arrivals]
    assert min(late) >= 0
    assert [due(b) - due(a) for a, b in pairwise(arrivals)] == [2.0] * 3
    assert arrivals[0].key == f"acme/{job_id}:{arrivals[0].headers['carillon-scheduled-time']}"
    assert (await view(job)).stats.succeeded >= 3


async def test_a_one_off_runs_once_and_completes(fleet: Fleet, sink: Sink) -> None:
    job = await fleet.create(fresh("once"), {"schedule": {"in": 1}, "target": {"url": sink.url("/once")}})
    await sink.wait_for("/once", 1)
    handle = await job.describe()
    assert handle.status is not None
    assert handle.status.name == "RUNNING"


async def test_a_target_that_fails_twice_gets_three_attempts_of_one_key(fleet: Fleet, sink: Sink) -> None:
    async def flaky(_: Arrival, before: int) -> web.Response:
        return web.Response(status=500 if before < 2 else 200)

    sink.answers["/flaky"] = flaky
    job_id = fresh("flaky")
    await fleet.create(
        job_id,
        {
            "schedule": {"at": (datetime.now(UTC) + timedelta(seconds=1)).isoformat()},
            "retry": {"initial_interval": 1, "factor": 2, "jitter": 0},
            "target": {"url": sink.url("/flaky")},
        },
    )
    arrivals = await sink.wait_for("/flaky", 3)
    assert len({arrival.key for arrival in arrivals}) == 1
    assert [arrival.execution_id.rsplit(":", 1)[1] for arrival in arrivals] == ["1", "2", "3"]
    first, second = (b.at - a.at for a, b in pairwise(arrivals))
    assert first >= 1.0
    assert second >= 2.0
