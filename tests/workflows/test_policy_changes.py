"""Manual runs under each policy, and a change of policy while runs are active: settled, not guessed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.fleet import TENANT, Fleet, actor, fresh, view
from tests.sink import Sink
from tests.workflows.asking import (
    Gate,
    Job,
    at,
    edit,
    from_now,
    pause,
    refusal,
    seen,
    stored,
    told,
    trigger,
)
from workflows.contracts import failures, names
from workflows.contracts.attempt import Occurrence
from workflows.contracts.job import BesideRun, CancelRequest, JobChanged, RedriveRequest, Triggered
from workflows.requested import TRIGGERS_MAX

UPDATES = True


def once(sink: Sink, name: str, policy: str, seconds: float = 1, **concurrency: Any) -> dict[str, Any]:
    return {
        "schedule": {"at": at(from_now(seconds))},
        "concurrency": {"policy": policy, **concurrency},
        "target": {"url": sink.url(f"/{name}")},
    }


async def active(fleet: Fleet, sink: Sink, policy: str, **concurrency: Any) -> tuple[str, Job, Gate]:
    """A job whose one occurrence is in flight until the gate is opened."""
    name = fresh(policy)
    gate = Gate(sink, f"/{name}")
    job = await fleet.create(name, once(sink, name, policy, **concurrency))
    await sink.wait_for(f"/{name}", 1)
    return f"/{name}", job, gate


async def test_a_trigger_waits_in_line_under_queue(fleet: Fleet, sink: Sink) -> None:
    path, job, gate = await active(fleet, sink, "queue")
    await trigger(job, "first")
    await trigger(job, "second")
    assert [row.key.rpartition(":")[2] for row in (await view(job)).waiting] == [
        "manual-first",
        "manual-second",
    ]
    assert len(sink.at(path)) == 1
    gate.open()
    arrivals = await sink.wait_for(path, 3)
    assert [one.key.rpartition(":")[2] for one in arrivals[1:]] == ["manual-first", "manual-second"]
    found = await seen(job, lambda found: found.status == "completed")
    assert (found.stats.runs, found.stats.succeeded) == (3, 3)


async def test_a_trigger_runs_beside_under_allow_up_to_the_limit(fleet: Fleet, sink: Sink) -> None:
    path, job, gate = await active(fleet, sink, "allow", limit=2)
    await trigger(job, "beside")
    await sink.wait_for(path, 2)
    await trigger(job, "waits")
    await asyncio.sleep(0.5)
    assert len(sink.at(path)) == 2
    gate.open()
    await sink.wait_for(path, 3)
    found = await seen(job, lambda found: found.status == "completed" and not found.beside)
    assert (found.stats.runs, found.stats.succeeded) == (3, 3)


async def test_a_trigger_replaces_the_active_run_under_replace(fleet: Fleet, sink: Sink) -> None:
    path, job, gate = await active(fleet, sink, "replace")
    await trigger(job)
    _, second = await sink.wait_for(path, 2)
    assert second.key.endswith(":manual-now")
    gate.open()
    rows = await stored(fleet, job, lambda rows: len([row for row in rows if row.ended_at]) == 2)
    assert told(rows) == [("replaced", "replaced", 1), ("succeeded", None, 1)]


async def test_a_trigger_is_refused_under_forbid_while_a_run_of_another_policy_is_left(
    fleet: Fleet, sink: Sink
) -> None:
    path, job, gate = await active(fleet, sink, "allow")
    await trigger(job, "beside")
    await sink.wait_for(path, 2)
    await edit(job, once(sink, path[1:], "forbid", 60))
    kind, _ = await refusal(trigger(job, "refused"))
    assert kind == failures.RUN_ACTIVE
    gate.open()


LEFT_OVER = {
    "forbid": (["skipped"], 2),
    "queue": (["succeeded"], 3),
    "replace": (["succeeded"], 3),
}


@pytest.mark.parametrize("policy", LEFT_OVER)
async def test_an_occurrence_meets_a_run_left_beside_the_loop_by_allow(
    fleet: Fleet, sink: Sink, policy: str
) -> None:
    """Forbid skips it, queue waits, replace stops what is left: no second run beside it in any case."""
    outcomes, arrivals = LEFT_OVER[policy]
    name = fresh("left")
    gate = Gate(sink, f"/{name}")
    every = {"schedule": {"every": 3, "anchor": at(from_now(0))}, "target": {"url": sink.url(f"/{name}")}}
    job = await fleet.create(name, {**every, "concurrency": {"policy": "allow"}})
    await sink.wait_for(f"/{name}", 2)  # one in the loop, one beside it
    changed = await edit(job, {**every, "concurrency": {"policy": policy}, "max_runs": 3})
    assert len(changed.in_flight) == 2
    if policy == "forbid":
        await asyncio.sleep(3.5)
        gate.open()
        found = await seen(job, lambda found: found.stats.skipped > 0)
        assert found.stats.missed == 0
        return
    if policy == "queue":
        await asyncio.sleep(3.5)
        assert len(sink.at(f"/{name}")) == 2
        gate.open()
    await sink.wait_for(f"/{name}", 3)
    gate.open()
    rows = await stored(fleet, job, lambda rows: len([row for row in rows if row.ended_at]) >= 3)
    assert len(sink.at(f"/{name}")) == arrivals
    assert [row.outcome for row in sorted(rows, key=lambda row: row.scheduled_time)][2:] == outcomes


async def test_waiting_in_line_ends_as_skipped_when_the_policy_becomes_forbid(
    fleet: Fleet, sink: Sink
) -> None:
    name = fresh("line")
    gate = Gate(sink, f"/{name}")
    every = {"schedule": {"every": 1, "anchor": at(from_now(0))}, "target": {"url": sink.url(f"/{name}")}}
    job = await fleet.create(name, {**every, "concurrency": {"policy": "queue"}})
    await sink.wait_for(f"/{name}", 1)
    await asyncio.sleep(2.2)
    await edit(job, {**every, "concurrency": {"policy": "forbid"}})
    gate.open()
    rows = await stored(fleet, job, lambda rows: any(row.outcome == "skipped" for row in rows))
    (row,) = [row for row in rows if row.outcome == "skipped"][:1]
    assert (row.reason, row.count >= 2) == ("overlap", True)
    assert (await view(job)).stats.missed == 0


async def test_a_pause_names_the_runs_beside_the_loop(fleet: Fleet, sink: Sink) -> None:
    path, job, gate = await active(fleet, sink, "allow")
    await trigger(job, "beside")
    await sink.wait_for(path, 2)
    changed = await pause(job)
    assert {(one.key.rpartition(":")[2], one.state) for one in changed.in_flight} >= {
        ("manual-beside", "in_flight")
    }
    gate.open()


async def test_what_waits_in_line_can_be_cancelled(fleet: Fleet, sink: Sink) -> None:
    name = fresh("line")
    gate = Gate(sink, f"/{name}")
    job = await fleet.create(
        name,
        {
            "schedule": {"every": 2},
            "max_runs": 2,
            "concurrency": {"policy": "queue"},
            "target": {"url": sink.url(f"/{name}")},
        },
    )
    (first,) = await sink.wait_for(f"/{name}", 1)
    found = await view(job)
    second = next(one for one in found.plan if not first.key.endswith(one.scheduled_time.isoformat()))
    await asyncio.sleep(2.5)
    second = next(one for one in found.plan if one.scheduled_time > found.plan[0].scheduled_time)
    key = names.scheduled_key("acme", name, second.scheduled_time)
    cancel = CancelRequest(key=key, actor=actor())
    await job.execute_update(names.UPDATE_CANCEL, cancel, result_type=JobChanged)
    gate.open()
    rows = await stored(fleet, job, lambda rows: any(row.outcome == "skipped" for row in rows))
    assert ("skipped", "asked", 1) in told(rows)


async def test_a_redrive_goes_on_at_its_attempt_and_is_not_doubled(fleet: Fleet, sink: Sink) -> None:
    name = fresh("redriven")
    job = await fleet.create(name, once(sink, name, "forbid", 3600))
    instant = from_now(-3600).replace(microsecond=0)
    occurrence = Occurrence(
        key=names.scheduled_key("acme", name, instant),
        trigger="redrive",
        scheduled_time=instant,
        fires_at=instant,
    )
    asked = RedriveRequest(occurrence=occurrence, attempt=6, actor=actor())
    gate = Gate(sink, f"/{name}")
    await job.execute_update(names.UPDATE_REDRIVE, asked, result_type=Triggered)
    (arrival,) = await sink.wait_for(f"/{name}", 1)
    again = await job.execute_update(names.UPDATE_REDRIVE, asked, result_type=Triggered)
    assert again.repeated
    gate.open()
    assert arrival.execution_id == f"{occurrence.key}:6"
    assert arrival.headers["carillon-trigger"] == "redrive"
    found = await seen(job, lambda found: found.stats.succeeded == 1)
    assert found.scheduled_runs == 0
    assert len(sink.at(f"/{name}")) == 1


async def test_manual_runs_with_large_bodies_wait_within_a_bound(fleet: Fleet, sink: Sink) -> None:
    """What waits has to fit into one payload when the job continues as new."""
    _, job, gate = await active(fleet, sink, "queue")
    for number in range(5):
        await trigger(job, f"large-{number}", body="x" * 50_000)
    kind, message = await refusal(trigger(job, "one-too-many", body="x" * 50_000))
    assert (kind, message) == (failures.TOO_MANY_TRIGGERS, "manual runs with large bodies wait already")
    gate.open()


async def test_runs_forced_past_the_gate_are_bounded_however_they_are_asked_for(
    fleet: Fleet, sink: Sink
) -> None:
    """Each is a row of the job's state until it has ended; a redrive or rerun is one as a trigger is."""
    name, now = fresh("forced"), datetime.now(UTC).replace(microsecond=0)
    rows = [
        BesideRun(
            key=names.manual_key(TENANT, name, str(number)), scheduled_time=now, fires_at=now,
            trigger="manual", outcome="scheduled", seq=0, revision=1,
        )
        for number in range(TRIGGERS_MAX)
    ]  # fmt: skip
    definition = {"schedule": {"cron": "0 0 1 1 *"}, "target": {"url": sink.url(f"/{name}")}}
    job = await fleet.create(name, definition, beside=rows)
    key = names.rerun_key(names.scheduled_key(TENANT, name, now), 1)
    occurrence = Occurrence(key=key, trigger="rerun", scheduled_time=now, fires_at=now)
    rerun = RedriveRequest(occurrence=occurrence, force=True, actor=actor())
    kind, _ = await refusal(job.execute_update(names.UPDATE_REDRIVE, rerun, result_type=Triggered))
    assert kind == failures.TOO_MANY_TRIGGERS
    kind, _ = await refusal(trigger(job))
    assert kind == failures.TOO_MANY_TRIGGERS
