"""From a job id to the ref of its present generation.

The index knows. While the database is away: the process's own memory, then Temporal's visibility,
which is the one decision that may be taken by it (docs/decisions/0005).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass

from temporalio.client import Client

from api.connection import Connection
from api.problems import Kind, ProblemError
from infra.database.errors import DatabaseUnavailable
from infra.database.jobs import JobIndex
from infra.database.stored_job import StoredJob
from workflows.contracts.names import JOB_WORKFLOW, SEARCH_JOB, SEARCH_REF, SEARCH_TENANT, job_of

log = logging.getLogger(__name__)

REMEMBERED = 20_000
INDEX_WITHIN_S = 1.5


def no_such_job(job: str) -> ProblemError:
    return ProblemError(
        Kind.NOT_FOUND, f"There is no job `{job[:128]}`; see `GET /v1/jobs` for those there are."
    )


@dataclass(frozen=True, slots=True)
class Found:
    """A job that exists as far as is known; ``stored`` is its index row, None without a database."""

    tenant: str
    job: str
    ref: str
    stored: StoredJob | None = None

    @property
    def is_stored(self) -> bool:
        return self.stored is not None and self.stored.is_present


class Refs:
    def __init__(self, index: JobIndex, remembered: int = REMEMBERED) -> None:
        self._index = index
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._remembered = remembered

    async def find(self, connection: Connection, tenant: str, job: str) -> Found:
        """Raises 404 when the index knows no such job, 503 when nobody who answers knows it."""
        try:
            stored = await self._stored(tenant, job)
        except DatabaseUnavailable as error:
            log.info("the index does not answer, looking elsewhere: %s", error)
            return await self._without_database(connection, tenant, job, error)
        if stored is None:
            self.forget(tenant, job)
            raise no_such_job(job)
        self.remember(tenant, job, stored.ref)
        return Found(tenant, job, stored.ref, stored)

    async def _stored(self, tenant: str, job: str) -> StoredJob | None:
        try:
            async with asyncio.timeout(INDEX_WITHIN_S):
                return await self._index.get(tenant, job)
        except TimeoutError:
            raise DatabaseUnavailable("The index did not answer in time; check its load.") from None

    def remember(self, tenant: str, job: str, ref: str) -> None:
        self._known[tenant, job] = ref
        self._known.move_to_end((tenant, job))
        if len(self._known) > self._remembered:
            self._known.popitem(last=False)

    def forget(self, tenant: str, job: str) -> None:
        self._known.pop((tenant, job), None)

    async def _without_database(
        self, connection: Connection, tenant: str, job: str, error: DatabaseUnavailable
    ) -> Found:
        ref = self._known.get((tenant, job))
        if ref is None:
            ref = await _from_visibility(await connection.client(), tenant, job)
        if ref is None:
            raise error
        return Found(tenant, job, ref)


async def _from_visibility(client: Client, tenant: str, job: str) -> str | None:
    """The newest generation that is open. Tenant and job hold no quotes: both match their patterns."""
    query = (
        f"WorkflowType = '{JOB_WORKFLOW}' AND {SEARCH_TENANT} = '{tenant}' AND {SEARCH_JOB} = '{job}' "
        "AND ExecutionStatus = 'Running'"
    )
    refs: list[str] = []
    async for found in client.list_workflows(query, page_size=50, limit=50):
        refs.extend(str(value) for value in found.search_attributes.get(SEARCH_REF, []))
    return max(refs, key=lambda ref: job_of(ref)[1], default=None)
