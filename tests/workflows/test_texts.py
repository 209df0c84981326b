"""What an operator reads in the Temporal UI."""

from __future__ import annotations

from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowHandle

from tests.fleet import Fleet, fresh
from tests.sink import Sink
from tests.workflows.asking import answers, at, from_now, held, pause, resume, seen, trigger
from workflows.contracts.base import rfc3339


async def page(job: WorkflowHandle[Any, Any]) -> str:
    found = await job.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return str(found.current_details)


async def summaries(fleet: Fleet, job: WorkflowHandle[Any, Any]) -> list[str]:
    converter = fleet.client.data_converter.payload_converter
    return [
        converter.from_payload(event.user_metadata.summary, str)
        async for event in job.fetch_history_events()
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]


async def test_a_job_tells_its_state_and_each_attempt_names_itself(fleet: Fleet, sink: Sink) -> None:
    answers(sink, "/read", 500, 500)
    due = from_now(20).replace(microsecond=0)
    job = await fleet.create(
        fresh("read"),
        {
            "schedule": {"every": 3600, "anchor": at(due)},
            "retry": {"max_attempts": 2, "initial_interval": 0.2, "jitter": 0},
            "target": {"url": sink.url("/read")},
        },
    )
    ref = job.id.rpartition("/")[2]
    await held(job)
    text = await page(job)
    assert text.startswith("**active**, revision 1")
    assert f"now: attempt 1 of `acme/{ref}:{rfc3339(due)}`, due {rfc3339(due)}" in text
    assert "0 of 0 runs succeeded, 0 dead-lettered, 0 skipped, 0 missed" in text
    await trigger(job, "look")
    await seen(job, lambda found: found.stats.runs == 1)
    await pause(job, reason="the target is being moved")
    text = await page(job)
    assert "**paused**" in text
    assert "the target is being moved" in text
    assert f"last: `acme/{ref}:manual-look` dead_lettered (max_attempts)" in text
    assert "0 of 1 runs succeeded, 1 dead-lettered" in text
    await resume(job)
    await seen(job, lambda found: found.current is not None)
    read = await summaries(fleet, job)
    assert rfc3339(due) in read
    assert any(one.endswith(", manual") for one in read)
    assert any(", manual, attempt 2 at 2" in one for one in read)
    assert any(one.startswith("write ") for one in read)
