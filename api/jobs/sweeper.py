"""Settles reservations that nobody finished: Temporal says whether the job was started. Forgets old keys.

One that was started is activated as its workflow knows it, one that was not is given up. Every API
process sweeps; each step is a statement that does nothing the second time.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from temporalio.client import WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from api.clock import Clock
from api.connection import Connection
from api.jobs.reading import row_of_view
from infra.database.errors import DatabaseError
from infra.database.jobs import JobIndex
from infra.database.stored_job import StoredJob
from infra.temporal.errors import SetupError
from workflows.contracts.job import JobView
from workflows.contracts.names import QUERY_VIEW, job_workflow_id

log = logging.getLogger(__name__)

UNFINISHED_AFTER = timedelta(minutes=2)
EVERY_S = 30.0
BATCH = 100
_ASK = timedelta(seconds=5)


class Sweeper:
    def __init__(self, index: JobIndex, connection: Connection, clock: Clock) -> None:
        self._index = index
        self._connection = connection
        self._clock = clock

    async def run(self) -> None:
        """Sweeps until it is cancelled."""
        while True:
            try:
                await self.sweep()
                await self._index.forget_keys(self._clock())
            except (DatabaseError, RPCError, SetupError) as error:
                log.info("reservations are settled later: %s", error)
            except Exception:  # a fault of ours must not end the sweeping for good
                log.exception("reservations could not be settled")
            await asyncio.sleep(EVERY_S)

    async def sweep(self) -> int:
        """Settles what is old enough; how many it settled."""
        stale = await self._index.stale_reservations(self._clock() - UNFINISHED_AFTER, BATCH)
        settled = [await self._settle(reserved) for reserved in stale]
        return sum(settled)

    async def _settle(self, reserved: StoredJob) -> bool:
        client = await self._connection.client()
        handle = client.get_workflow_handle(job_workflow_id(reserved.tenant, reserved.ref))
        try:
            await handle.describe(rpc_timeout=_ASK)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            log.warning("job %s/%s was never started; its id is free again", reserved.tenant, reserved.ref)
            return await self._index.release(reserved.tenant, reserved.ref, now=self._clock())
        try:
            view: JobView = await handle.query(QUERY_VIEW, result_type=JobView, rpc_timeout=_ASK)
        except (RPCError, WorkflowQueryFailedError) as error:
            log.info("job %s/%s does not answer yet: %s", reserved.tenant, reserved.ref, error)
            return False
        await self._index.activate(reserved.tenant, row_of_view(reserved.tenant, view, self._clock()))
        return True
