"""An edit holds from its answer on, and never fires for the past."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.fleet import TENANT, Fleet, fresh, view
from tests.sink import Sink
from tests.workflows.asking import Gate, answers, at, edit, ended, from_now, held, seen, stored
from workflows.contracts import names
from workflows.contracts.attempt import Occurrence
from workflows.contracts.job import RunState
from workflows.contracts.records import Record

UPDATES = True


async def test_a_held_run_is_sent_under_the_new_definition_only(fleet: Fleet, sink: Sink) -> None:
    due = from_now(4)
    job = await fleet.create(
        fresh("held"), {"schedule": {"at": at(due)}, "target": {"url": sink.url("/held-old")}}
    )
    await held(job)
    changed = await edit(job, {"schedule": {"at": at(due)}, "target": {"url": sink.url("/held-new")}})
    assert (changed.in_flight, changed.view.revision) == ([], 2)
    [arrival] = await sink.wait_for("/held-new", 1)
    assert arrival.at >= due.timestamp()
    [row] = await stored(fleet, job, ended)
    assert (row.outcome, row.revision) == ("succeeded", 2)
    assert sink.at("/held-old") == []


async def test_a_held_run_that_was_sent_before_is_sent_again_behind_an_edit(fleet: Fleet, sink: Sink) -> None:
    """Its first holder died behind its delivery. The second has not fired yet, and is stopped: the run is
    under way all the same, and goes on under the new definition."""
    job_id, due = fresh("again"), from_now(6).replace(microsecond=0)
    key = names.scheduled_key(TENANT, job_id, due)
    run = RunState(
        occurrence=Occurrence(key=key, scheduled_time=due, fires_at=due), fires_at=due, deliveries=1, reaps=1,
        started_at=from_now(-5), run_number=1,
    )  # fmt: skip
    once = {"schedule": {"at": at(due)}}
    job = await fleet.create(
        job_id, {**once, "target": {"url": sink.url("/again-old")}}, cursor=due, run=run, served=[due],
        scheduled_runs=1,
    )  # fmt: skip
    await seen(job, lambda found: found.current is not None)
    changed = await edit(job, {**once, "target": {"url": sink.url("/again-new")}})
    assert [one.key for one in changed.in_flight] == [key]
    [arrival] = await sink.wait_for("/again-new", 1)
    assert (arrival.key, arrival.headers["carillon-delivery"]) == (key, "2")
    rows = await stored(fleet, job, lambda rows: bool(rows) and rows[-1].outcome == "succeeded")
    assert [(row.key, row.outcome) for row in rows] == [(key, "succeeded")]
    assert sink.at("/again-old") == []


async def test_a_job_far_in_the_future_runs_soon_when_it_is_told_to(fleet: Fleet, sink: Sink) -> None:
    target = {"url": sink.url("/sooner")}
    job = await fleet.create(fresh("sooner"), {"schedule": {"cron": "0 0 1 1 *"}, "target": target})
    await seen(job, lambda found: bool(found.plan))
    await edit(job, {"schedule": {"in": 1}, "target": target})
    await sink.wait_for("/sooner", 1)


async def test_a_new_schedule_does_not_fire_for_the_past(fleet: Fleet, sink: Sink) -> None:
    """Its instants since the last run were never due under it."""
    now = datetime.now(UTC)
    target = {"url": sink.url("/past")}
    job = await fleet.create(
        fresh("past"),
        {"schedule": {"every": 86400, "anchor": at(now - timedelta(hours=2))}, "target": target},
        cursor=now - timedelta(hours=1),
    )
    await seen(job, lambda found: bool(found.plan))
    await edit(
        job, {"schedule": {"every": 3600, "anchor": at(now - timedelta(seconds=30))}, "target": target}
    )
    found = await seen(job, lambda found: bool(found.plan))
    assert found.plan[0].scheduled_time > now
    assert (found.stats.runs, found.stats.missed, sink.at("/past")) == (0, 0, [])


async def test_an_edit_leaves_a_waiting_retry_its_time(fleet: Fleet, sink: Sink) -> None:
    answers(sink, "/retry-old", 500)
    schedule = {"at": at(from_now(0))}
    retry = {"initial_interval": 3, "jitter": 0}
    job = await fleet.create(
        fresh("retry"), {"schedule": schedule, "retry": retry, "target": {"url": sink.url("/retry-old")}}
    )
    [first] = await sink.wait_for("/retry-old", 1)
    waiting = await seen(job, lambda found: found.current is not None and found.current.outcome == "retrying")
    assert waiting.current is not None
    await edit(
        job,
        {"schedule": schedule, "retry": {"initial_interval": 60}, "target": {"url": sink.url("/retry-new")}},
    )
    [second] = await sink.wait_for("/retry-new", 1)
    assert second.execution_id == f"{first.key}:2"
    assert second.at >= waiting.current.fires_at.timestamp()
    [row] = await stored(fleet, job, lambda rows: any(row.outcome == "succeeded" for row in rows))
    assert (row.key, row.revision) == (first.key, 2)


async def test_a_run_in_flight_keeps_its_definition_and_the_next_takes_the_new_one(
    fleet: Fleet, sink: Sink
) -> None:
    gate = Gate(sink, "/flight-old", 500)
    retry = {"initial_interval": 1, "jitter": 0}
    schedule = {"at": at(from_now(0))}
    job = await fleet.create(
        fresh("flight"), {"schedule": schedule, "retry": retry, "target": {"url": sink.url("/flight-old")}}
    )
    [first] = await sink.wait_for("/flight-old", 1)
    changed = await edit(
        job, {"schedule": schedule, "retry": retry, "target": {"url": sink.url("/flight-new")}}
    )
    assert [(one.key, one.state) for one in changed.in_flight] == [(first.key, "in_flight")]
    gate.open()
    [second] = await sink.wait_for("/flight-new", 1)
    assert second.execution_id == f"{first.key}:2"
    ref = job.id.rpartition("/")[2]

    def attempts() -> list[tuple[int, str, int]]:
        return sorted(
            (one.attempt.attempt, one.attempt.outcome, one.attempt.revision)
            for one in fleet.recorder.records
            if isinstance(one, Record) and one.ref == ref and one.attempt is not None
            and one.attempt.outcome != "running"
        )  # fmt: skip

    await stored(fleet, job, lambda _: len(attempts()) == 2)
    assert attempts() == [(1, "failed", 1), (2, "succeeded", 2)]


async def test_an_edit_in_flight_neither_repeats_nor_recounts_the_run(fleet: Fleet, sink: Sink) -> None:
    """Of a job that may run twice one run is left, whatever its new times are."""
    gate = Gate(sink, "/twice")
    target = {"url": sink.url("/twice")}
    job = await fleet.create(fresh("twice"), {"schedule": {"in": 0}, "max_runs": 2, "target": target})
    await sink.wait_for("/twice", 1)
    await edit(job, {"schedule": {"every": 1}, "max_runs": 2, "target": target})
    gate.open()
    found = await seen(job, lambda found: found.status == "completed")
    assert (found.scheduled_runs, found.stats.runs, found.stats.missed) == (2, 2, 0)
    assert len({arrival.key for arrival in sink.at("/twice")}) == len(sink.at("/twice")) == 2
    assert (await view(job)).revision == 2
