"""Runs beside the loop of which the job does not know whether they have been started, or are alive still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client

import activities.starting
from infra.settings import Settings
from tests.fleet import TENANT, Fleet, actor, fresh, view
from tests.sink import Sink
from tests.workflows.asking import Gate, Job, backfill, cancel, delete, impatient_fleet, seen, stored
from tests.workflows.slow import Slow, create, slots
from workflows.contracts import names
from workflows.contracts.attempt import OwnBody
from workflows.contracts.job import JobState, JobView, Triggered, TriggerRequest
from workflows.domain import active

UPDATES = True

TRIES = 3
"""Of the start of a run beside the loop before the job goes on without an answer."""


@dataclass
class Starts:
    """The way to the server for starts of runs beside their jobs: it loses answers, or requests too."""

    unanswered: int
    """So many tries of each run."""
    arrive: bool = True
    tries: int = 0

    async def start(self, client: Client, alone: JobState) -> None:
        self.tries += 1
        lost = self.tries <= self.unanswered
        if self.arrive or not lost:
            await self.real(client, alone)
        if lost:
            raise RuntimeError("no answer")

    async def tried(self, count: int) -> None:
        async with asyncio.timeout(20):
            while self.tries < count:
                await asyncio.sleep(0.05)

    real = staticmethod(activities.starting.start_alone)


Lossy = Callable[..., Starts]


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch) -> Lossy:
    def make(unanswered: int, *, arrive: bool = True) -> Starts:
        starts = Starts(unanswered, arrive)
        monkeypatch.setattr(activities.starting, "start_alone", starts.start)
        return starts

    return make


@pytest.mark.parametrize("arrive", [True, False], ids=["the answer is lost", "the request is lost"])
async def test_a_run_whose_start_is_not_answered_runs_once(
    fleet: Fleet, sink: Sink, lossy: Lossy, arrive: bool
) -> None:
    """Not in the loop as well, whether it has been started or not; nothing that is due is lost."""
    starts = lossy(TRIES + 2, arrive=arrive)
    path, job = await create(fleet, sink, Slow(seconds=8), "allow", max_runs=3)
    await starts.tried(TRIES + 3)
    found = await seen(job, lambda found: found.status == "completed" and not found.beside, within=60)
    assert sorted(slots(sink.at(path))) == [0, 1, 2]
    assert (found.stats.runs, found.stats.succeeded) == (3, 3)


async def test_a_job_that_continues_as_new_goes_on_to_start_what_is_unsure(
    temporal_client: Client, temporal_settings: Settings, sink: Sink,
    monkeypatch: pytest.MonkeyPatch, lossy: Lossy,
) -> None:  # fmt: skip
    starts = lossy(1_000, arrive=False)
    async with impatient_fleet(temporal_client, temporal_settings, monkeypatch, RUNS_PER_HISTORY=1) as fleet:
        path, job = await create(fleet, sink, Slow(seconds=6), "allow", max_runs=2)
        await seen(job, lambda found: bool(found.beside))
        first = (await job.describe()).run_id
        await starts.tried(TRIES)
        async with asyncio.timeout(30):
            while (await job.describe()).run_id == first:
                await asyncio.sleep(0.1)
        starts.unanswered = 0
        found = await seen(job, lambda found: found.status == "completed" and not found.beside, within=60)
        assert (slots(sink.at(path)), found.stats.succeeded) == ([0, 1], 2)


async def test_a_forced_run_whose_start_is_not_answered_is_accepted(
    fleet: Fleet, sink: Sink, lossy: Lossy
) -> None:
    """It begins when there is a way to the server again, with the body it was given."""
    starts = lossy(TRIES + 1, arrive=False)
    gate = Gate(sink, "/accepted")
    definition = {"schedule": {"in": 1}, "target": {"url": sink.url("/accepted")}}
    job = await fleet.create(fresh("accepted"), definition)
    await sink.wait_for("/accepted", 1)
    request = TriggerRequest(request="forced", force=True, body=OwnBody(value="own"), actor=actor())
    accepted = await job.execute_update(names.UPDATE_TRIGGER, request, result_type=Triggered)
    again = await job.execute_update(names.UPDATE_TRIGGER, request, result_type=Triggered)
    assert (accepted.repeated, again.repeated) == (False, True)
    _, forced = await sink.wait_for("/accepted", 2)
    assert (forced.key, starts.tries) == (accepted.execution.key, TRIES + 2)
    assert forced.body == b'"own"'
    gate.open()
    await seen(job, lambda found: found.stats.succeeded == 2 and not found.beside)


@pytest.mark.parametrize("arrive", [True, False], ids=["started", "not started"])
async def test_a_run_that_is_cancelled_while_its_start_is_unsure_ends_cancelled(
    fleet: Fleet, sink: Sink, lossy: Lossy, arrive: bool
) -> None:
    starts = lossy(1_000, arrive=arrive)
    Gate(sink, "/unsure")
    definition = {"schedule": {"in": 1}, "target": {"url": sink.url("/unsure")}}
    job = await fleet.create(fresh("unsure"), definition)
    await sink.wait_for("/unsure", 1)
    request = TriggerRequest(request="forced", force=True, actor=actor())
    key = (await job.execute_update(names.UPDATE_TRIGGER, request, result_type=Triggered)).execution.key
    changed = await cancel(job, key)
    assert [(one.key, one.state) for one in changed.in_flight] == [(key, "stopping")]
    before = len(sink.at("/unsure"))
    starts.unanswered = 0
    found = await seen(job, lambda found: not found.beside)
    assert found.last_run is not None
    assert (found.last_run.key, found.last_run.outcome) == (key, "cancelled")
    if not arrive:
        assert len(sink.at("/unsure")) == before, "what had not fired does not, once the cancel is answered"


async def test_a_run_whose_job_is_deleted_with_all_that_runs_does_not_fire_if_it_had_not(
    fleet: Fleet, sink: Sink, lossy: Lossy
) -> None:
    """Its job stays until the word of its end has come."""
    starts = lossy(1_000, arrive=False)
    Gate(sink, "/all-deleted")
    definition = {"schedule": {"in": 1}, "target": {"url": sink.url("/all-deleted")}}
    job = await fleet.create(fresh("all-deleted"), definition)
    await sink.wait_for("/all-deleted", 1)
    request = TriggerRequest(request="forced", force=True, actor=actor())
    key = (await job.execute_update(names.UPDATE_TRIGGER, request, result_type=Triggered)).execution.key
    await delete(job, cancel=True)
    before = len(sink.at("/all-deleted"))
    starts.unanswered = 0
    async with asyncio.timeout(30):
        await job.result()
    rows = await stored(fleet, job, lambda rows: any(row.key == key and row.ended_at for row in rows))
    assert [(row.outcome, row.reason) for row in rows if row.key == key] == [("cancelled", "deleted")]
    assert len(sink.at("/all-deleted")) == before


async def test_a_deleted_job_stays_until_what_it_accepted_has_been_started(
    fleet: Fleet, sink: Sink, lossy: Lossy
) -> None:
    starts = lossy(1_000, arrive=False)
    gate = Gate(sink, "/deleted")
    definition = {"schedule": {"in": 1}, "target": {"url": sink.url("/deleted")}}
    job = await fleet.create(fresh("deleted"), definition)
    await sink.wait_for("/deleted", 1)
    request = TriggerRequest(request="forced", force=True, actor=actor())
    await job.execute_update(names.UPDATE_TRIGGER, request, result_type=Triggered)
    await delete(job)
    gate.open()
    await starts.tried(TRIES + 2)
    starts.unanswered = 0
    await sink.wait_for("/deleted", 2)
    async with asyncio.timeout(20):
        await job.result()


# -- silent ones -----------------------------------------------------------------------------------


@pytest.fixture
def soon_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active, "DOUBT_AT_LATEST", timedelta(seconds=3))
    monkeypatch.setattr(active, "DOUBT_AGAIN", timedelta(seconds=1))


async def cut_off(fleet: Fleet, job: Job, found: JobView, *, backfill: int | None = None) -> None:
    """An operator terminates the runs beside the loop."""
    for row in found.beside:
        name = names.run_name(row.key, backfill=backfill)
        run_id = names.run_workflow_id(TENANT, job.id.rpartition("/")[2], name)
        await fleet.client.get_workflow_handle(run_id).terminate("an operator")


@pytest.mark.usefixtures("soon_in_doubt")
@pytest.mark.parametrize("max_runs", [2, None], ids=["nothing falls due", "others fall due"])
async def test_a_terminated_run_is_noticed_though_it_holds_up_nobody(
    fleet: Fleet, sink: Sink, max_runs: int | None
) -> None:
    """Others that are as old and alive are left alone."""
    limit = {} if max_runs is None else {"max_runs": max_runs}
    slow = Slow(seconds=600)
    _, job = await create(fleet, sink, slow, "allow", concurrency={"limit": 100}, **limit)
    found = await seen(job, lambda found: bool(found.beside))
    gone = found.beside[0].key
    await asyncio.sleep(0.5)
    await cut_off(fleet, job, found)
    found = await seen(job, lambda found: gone not in [row.key for row in found.beside])
    rows = await stored(fleet, job, lambda rows: any(row.key == gone and row.ended_at for row in rows))
    assert [(row.outcome, row.reason) for row in rows if row.key == gone] == [("cancelled", "terminated")]
    if max_runs is None:
        later = await seen(job, lambda found: len(found.beside) >= 3)
        await asyncio.sleep(4)
        alive = {row.key for row in (await view(job)).beside}
        assert {row.key for row in later.beside} <= alive
    await delete(job)
    await cut_off(fleet, job, await view(job))


@pytest.mark.usefixtures("soon_in_doubt")
async def test_a_backfill_ends_though_one_of_its_runs_was_terminated(fleet: Fleet, sink: Sink) -> None:
    day = datetime(2026, 11, 2, tzinfo=UTC)
    gate = Gate(sink, "/filled")
    definition = {
        "schedule": {"every": 60, "anchor": day.isoformat()},
        "ends_at": (day + timedelta(minutes=3)).isoformat(),
        "concurrency": {"policy": "allow"},
        "target": {"url": sink.url("/filled")},
    }
    job = await fleet.create(fresh("filled"), definition)
    await backfill(job, day, day + timedelta(minutes=2), total=2, max_concurrent=2)
    await sink.wait_for("/filled", 2)
    found = await seen(job, lambda found: bool(found.beside))
    await cut_off(fleet, job, found, backfill=1)
    gate.open()
    found = await seen(job, lambda found: found.backfills[0].status == "done")
    assert (found.backfills[0].succeeded, found.backfills[0].cancelled) == (1, 1)
