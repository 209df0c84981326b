"""What an occurrence costs, read from real histories: events, workflow tasks and bytes."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

from infra.settings import Settings
from tests.fleet import Fleet, fresh
from tests.sink import Arrival, Sink

JOBS = 10
OVER = 50
"""Occurrences a cost is averaged over."""


@dataclass(frozen=True)
class Cost:
    attempts: int
    events: int
    tasks: int
    bytes: int
    kinds: Counter[str]

    @property
    def events_each(self) -> float:
        return self.events / self.attempts

    @property
    def tasks_each(self) -> float:
        return self.tasks / self.attempts

    @property
    def bytes_each(self) -> float:
        return self.bytes / self.attempts


async def cost_of(job: WorkflowHandle[Any, Any]) -> Cost:
    """From the completion of the first attempt to that of the last: whole turns, without the start."""
    ends = (EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED)
    events = [event async for event in job.fetch_history_events()]
    turns = [place for place, event in enumerate(events) if event.event_type in ends]
    between = events[turns[0] + 1 : turns[-1] + 1]
    kinds = Counter(EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in between)
    size = sum(event.ByteSize() for event in between)
    return Cost(len(turns) - 1, len(between), kinds["WORKFLOW_TASK_COMPLETED"], size, kinds)


def total(costs: list[Cost]) -> Cost:
    kinds: Counter[str] = Counter()
    for cost in costs:
        kinds += cost.kinds
    return Cost(
        sum(cost.attempts for cost in costs),
        sum(cost.events for cost in costs),
        sum(cost.tasks for cost in costs),
        sum(cost.bytes for cost in costs),
        kinds,
    )


async def run_jobs(
    client: Client, settings: Settings, sink: Sink, path: str, each: int, **definition: Any
) -> Cost:
    """``JOBS`` jobs side by side until every one has made ``each`` turns."""
    fleet = await Fleet(client, settings).start()
    try:
        jobs = [
            await fleet.create(fresh("cost"), {"target": {"url": sink.url(f"{path}/{n}")}, **definition})
            for n in range(JOBS)
        ]
        await asyncio.gather(*(sink.wait_for(f"{path}/{n}", each + 2, within=90) for n in range(JOBS)))
        return total([await cost_of(job) for job in jobs])
    finally:
        await fleet.stop()


async def test_a_held_occurrence_costs_seven_events_one_workflow_task_and_two_kilobytes_at_most(
    temporal_client: Client, temporal_settings: Settings, sink: Sink
) -> None:
    cost = await run_jobs(temporal_client, temporal_settings, sink, "/held", 6, schedule={"every": 2})
    assert cost.attempts >= OVER
    assert cost.events_each <= 7, cost
    assert cost.tasks_each <= 1, cost
    assert cost.bytes_each <= 2000, cost
    assert not [kind for kind in cost.kinds if "SEARCH_ATTRIBUTES" in kind or "PROPERTIES" in kind]


async def test_an_occurrence_with_a_sleep_costs_twelve_events_and_two_workflow_tasks_at_most(
    temporal_client: Client, temporal_settings: Settings, sink: Sink
) -> None:
    short_hold = temporal_settings.model_copy(update={"look_ahead": timedelta(seconds=3)})
    cost = await run_jobs(temporal_client, short_hold, sink, "/slept", 5, schedule={"every": 5})
    assert cost.attempts >= OVER
    assert cost.kinds["TIMER_FIRED"] >= 0.8 * cost.attempts, "those that were late are not slept for"
    assert cost.events_each <= 12, cost
    assert cost.tasks_each <= 2, cost


async def test_a_failed_attempt_costs_no_more_than_a_successful_one(
    temporal_client: Client, temporal_settings: Settings, sink: Sink
) -> None:
    async def fail(_: Arrival, before: int) -> web.Response:
        return web.Response(status=500)

    for n in range(JOBS):
        sink.answers[f"/failed/{n}"] = fail
    cost = await run_jobs(
        temporal_client, temporal_settings, sink, "/failed", 6,
        schedule={"in": 1},
        retry={"max_attempts": 20, "initial_interval": 1, "factor": 1, "jitter": 0},
    )  # fmt: skip
    assert cost.attempts >= OVER
    assert cost.events_each <= 7, cost
    assert cost.tasks_each <= 1, cost


WITH_POLICY = {"queue": 7, "allow": 9, "replace": 9}
"""Events at most: ``allow`` and ``replace`` keep a timer beside each run, for what falls due meanwhile."""


@pytest.mark.parametrize(("policy", "most"), WITH_POLICY.items())
async def test_another_policy_costs_a_timer_at_most_and_no_workflow_task(
    temporal_client: Client, temporal_settings: Settings, sink: Sink, policy: str, most: int
) -> None:
    cost = await run_jobs(
        temporal_client, temporal_settings, sink, f"/{policy}", 6,
        schedule={"every": 2},
        concurrency={"policy": policy},
    )  # fmt: skip
    assert cost.attempts >= OVER
    assert cost.events_each <= most, cost
    assert cost.tasks_each <= 1, cost
