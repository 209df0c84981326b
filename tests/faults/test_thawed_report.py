"""An answer that came while its worker stood still is old news once the lease is lost: nobody records it."""

from __future__ import annotations

import asyncio

from aiohttp import web

from tests.faults.processes import LEASE, frozen, pids
from tests.faults.receiver import Caller, Receiver
from tests.faults.watched import Watched
from tests.processes.conftest import TENANT, Installation
from workflows.contracts.names import job_workflow_id

JOB = "thawed-report"


async def until_pending(
    installation: Installation, job: str, number: int, word: bytes, within: float
) -> None:
    """Until the server has the attempt of this job in its ``number``-th hands, after ``word`` was heard."""
    handle = (await installation.temporal()).get_workflow_handle(job_workflow_id(TENANT, job))
    async with asyncio.timeout(within):
        while True:
            for pending in (await handle.describe()).raw_description.pending_activities:
                heard = any(word in one.data for one in pending.heartbeat_details.payloads)
                if pending.attempt >= number and heard:
                    return
            await asyncio.sleep(0.05)


async def test_an_old_answer_is_not_recorded_over_the_delivery_that_follows(
    harmed: Installation, watched: Watched, receiver: Receiver
) -> None:
    """The first delivery is refused for good while its worker is frozen past its lease. What the job shows
    while the second is under way is that it runs, and at its end one success."""
    stands_still, released = asyncio.Event(), asyncio.Event()

    async def refuse_then_succeed(caller: Caller) -> web.StreamResponse:
        if caller.number == 0:
            await stands_still.wait()
            return caller.answer(400)
        await released.wait()
        return caller.answer()

    receiver.manners[JOB] = refuse_then_succeed
    await watched.once(JOB)
    await receiver.wait_for(JOB)
    await until_pending(harmed, JOB, 1, b'"fired"', 10)
    [worker] = pids(harmed, "worker")
    async with frozen(worker):
        stands_still.set()
        await until_pending(harmed, JOB, 2, b'"fired"', LEASE + 10)
    _, second = await receiver.wait_for(JOB, 2, within=60)
    assert second.delivery == 2
    [row] = await harmed.until_executions(
        JOB, lambda rows: any(one["delivery"] == 2 for one in rows[0]["attempts"])
    )
    assert [(one["delivery"], one["outcome"]) for one in row["attempts"]] == [(2, "running")]
    [listed] = (await harmed.api.get("/jobs", params={"q": JOB})).json()["items"]
    assert (listed["stats"]["runs"], listed["stats"]["dead_lettered"]) == (0, 0)
    released.set()
    assert await watched.until_ended(JOB) == "succeeded"
    [row] = await harmed.executions(JOB)
    assert [(one["delivery"], one["outcome"]) for one in row["attempts"]] == [(2, "succeeded")]
