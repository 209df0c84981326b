"""A concurrency group of the tests, its holders and its queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.fleet import TENANT, Fleet, actor, fresh
from tests.sink import Sink
from tests.workflows.asking import (
    Gate,
    Job,
    at,
    from_now,
    seen,
)
from workflows.contracts import names
from workflows.contracts.group import GroupLimit, GroupState, GroupView
from workflows.contracts.job import JobView


class Group:
    """One group of the tenant, made before any job names it."""

    def __init__(self, fleet: Fleet, sink: Sink, name: str) -> None:
        self.fleet, self.sink, self.name = fleet, sink, name
        self.handle: Job = fleet.client.get_workflow_handle(names.group_workflow_id(TENANT, name))

    @classmethod
    async def made(cls, fleet: Fleet, sink: Sink, *, limit: int = 1) -> Group:
        made = cls(fleet, sink, fresh("group"))
        state = GroupState(tenant=TENANT, group=made.name, limit=limit)
        fleet.jobs.append(
            await fleet.client.start_workflow(
                names.GROUP_WORKFLOW, state, id=made.handle.id, task_queue=names.MAIN_QUEUE
            )
        )
        return made

    async def limited(self, limit: int) -> GroupView:
        view: GroupView = await self.handle.execute_update(
            names.UPDATE_LIMIT, GroupLimit(limit=limit, actor=actor()), result_type=GroupView
        )
        return view

    async def until(self, enough: Callable[[GroupView], bool], within: float = 60) -> GroupView:
        async with asyncio.timeout(within):
            while not enough(found := await self.handle.query(names.QUERY_VIEW, result_type=GroupView)):
                await asyncio.sleep(0.05)
        return found

    async def is_empty(self) -> None:
        await self.until(lambda found: not found.held and not found.queued)

    def definition(self, path: str, **more: Any) -> dict[str, Any]:
        """A job that runs once, at once."""
        return {
            "schedule": {"at": at(from_now(-2))},
            "target": {"url": self.sink.url(path)},
            "concurrency": {"group": self.name},
            "heartbeat_timeout": 3,
            **more,
        }

    async def job(self, path: str, **more: Any) -> Job:
        definition = self.definition(path, **more)
        return await self.fleet.create(fresh(path.strip("/")), definition, cursor=from_now(-5))

    async def holder(self, path: str = "/holder", **more: Any) -> tuple[Job, Gate]:
        """A job whose run has a place and keeps it until its gate opens."""
        gate = Gate(self.sink, path)
        job = await self.job(path, **more)
        await self.sink.wait_for(path, 1)
        return job, gate

    async def waiter(self, path: str, **more: Any) -> Job:
        """A job whose run waits for a place."""
        job = await self.job(path, **more)
        await seen(job, is_queued)
        ref = job.id.rpartition("/")[2]
        await self.until(lambda found: any(f"/{ref}:" in one.key for one in found.waiting))
        return job


def is_queued(found: JobView) -> bool:
    return found.current is not None and found.current.outcome == "queued"


def order(sink: Sink) -> str:
    return " ".join(arrival.path.strip("/") for arrival in sink.arrivals)
