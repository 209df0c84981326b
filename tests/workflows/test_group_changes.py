"""What is asked of a job meets its run while that waits for its group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fleet import Fleet, actor, view
from tests.sink import Sink
from tests.workflows.asking import (
    Job,
    delete,
    edit,
    ended,
    pause,
    resume,
    stored,
    told,
)
from tests.workflows.grouped import Group, order
from workflows.contracts import names
from workflows.contracts.job import CancelRequest

UPDATES = True


async def paused(job: Job, _: Group) -> None:
    assert (await pause(job)).in_flight == []
    await resume(job)


async def deleted(job: Job, _: Group) -> None:
    assert (await delete(job)).in_flight == []


async def cancelled(job: Job, _: Group) -> None:
    found = await view(job)
    assert found.current is not None
    request = CancelRequest(key=found.current.key, actor=actor())
    await job.execute_update(names.UPDATE_CANCEL, request)


async def changed(job: Job, **fields: Any) -> None:
    """An edit of these fields and nothing else."""
    definition = (await view(job)).definition
    await edit(job, {**definition.model_dump(mode="json", by_alias=True), **fields})


async def ungrouped(job: Job, _: Group) -> None:
    await changed(job, concurrency={})


async def regrouped(job: Job, group: Group) -> None:
    await changed(job, concurrency={"group": f"{group.name}-2"})


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        pytest.param(paused, [("skipped", "paused", 1)], id="pause"),
        pytest.param(cancelled, [("cancelled", "asked", 1)], id="cancel"),
        pytest.param(deleted, [("cancelled", "deleted", 1)], id="delete"),
        pytest.param(ungrouped, [("succeeded", None, 1)], id="an edit without a group"),
        pytest.param(regrouped, [("succeeded", None, 1)], id="an edit with another group"),
    ],
)
async def test_a_change_meets_a_run_that_waits_for_its_group(
    fleet: Fleet, sink: Sink, change: Callable[[Job, Group], Any], rows: list[tuple[str, str, int]]
) -> None:
    """It leaves the queue. Stopped, it does not run; where it is not kept any more, it runs at once."""
    group = await Group.made(fleet, sink)
    _, gate = await group.holder()
    waiter = await group.waiter("/waiter")
    await change(waiter, group)
    await group.until(lambda found: found.queued == 0)
    assert told(await stored(fleet, waiter, ended)) == rows
    assert (await group.until(lambda found: found.held == 1)).holders[0].token == 1
    gate.open()
    await group.is_empty()
    assert len(sink.at("/waiter")) == (rows[0][0] == "succeeded")


async def test_an_edit_of_something_else_leaves_a_run_its_turn(fleet: Fleet, sink: Sink) -> None:
    group = await Group.made(fleet, sink)
    _, gate = await group.holder()
    waiter = await group.waiter("/waiter")
    await group.waiter("/behind")
    await changed(waiter, description="new")
    gate.open()
    await sink.wait_for("/behind", 1)
    assert order(sink) == "holder waiter behind"
