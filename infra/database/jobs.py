"""The index of jobs: what lists and searches read, and where a job's id is taken."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal

import sqlalchemy as sa

from infra.database import job_list, reservations
from infra.database.admission import Draft, Reservation
from infra.database.engine import Database
from infra.database.errors import ReservationRefused
from infra.database.job_list import JobFilter, JobSort
from infra.database.page import Page
from infra.database.records import apply_jobs
from infra.database.schema import LIVE, jobs
from infra.database.stored_job import StoredJob, from_row
from workflows.contracts.definition import JobDefinition
from workflows.contracts.names import job_of
from workflows.contracts.records import JobRow, Outcome

Activation = Literal["active", "freed", "missing"]


def random_id() -> str:
    """An id that nobody has: 26 characters of ``[a-z2-7]``."""
    return _text(secrets.token_bytes(16))


def id_of_key(tenant: str, key: str) -> str:
    """The id of a job created under an Idempotency-Key without one: always the same."""
    return _text(hashlib.sha256(f"job\n{tenant}\n{key}".encode()).digest()[:16])


def _text(sixteen: bytes) -> str:
    return base64.b32encode(sixteen).decode().rstrip("=").lower()


class JobIndex:
    """The ``jobs`` table. Every method raises DatabaseUnavailable when there is no answer in time."""

    def __init__(self, database: Database, *, new_id: Callable[[], str] = random_id) -> None:
        self._database = database
        self._new_id = new_id

    async def reserve(
        self,
        tenant: str,
        job_id: str | None,
        definition: JobDefinition,
        *,
        fingerprint: str,
        idempotency_key: str | None = None,
        max_jobs: int,
        create_rate: float,
        now: datetime,
        created_by: str = "",
    ) -> Reservation:
        """Take the id and a place of the quota, or find the place that this request took before.

        Without ``job_id`` the id comes from the key, else it is random. Raises QuotaExceeded,
        CreateRateExceeded, JobExists or IdempotencyConflict.
        """
        draft = self.draft(
            tenant,
            job_id,
            definition,
            fingerprint=fingerprint,
            idempotency_key=idempotency_key,
            created_by=created_by,
        )
        [answer] = await self.reserve_all(
            tenant, [draft], max_jobs=max_jobs, create_rate=create_rate, now=now
        )
        if isinstance(answer, ReservationRefused):
            raise answer
        return answer

    def draft(
        self,
        tenant: str,
        job_id: str | None,
        definition: JobDefinition,
        *,
        fingerprint: str,
        idempotency_key: str | None = None,
        created_by: str = "",
        request_id: str = "",
    ) -> Draft:
        """One creation of a batch for :meth:`reserve_all`; its id is settled here."""
        if job_id is None:
            job_id = self._new_id() if idempotency_key is None else id_of_key(tenant, idempotency_key)
        return Draft(job_id, definition, fingerprint, idempotency_key, created_by, request_id)

    async def reserve_all(
        self, tenant: str, drafts: Sequence[Draft], *, max_jobs: int, create_rate: float, now: datetime
    ) -> list[Reservation | ReservationRefused]:
        """:meth:`reserve` for many in one transaction: an answer or a refusal for each, in order."""
        return await self._database.write(
            lambda connection: reservations.reserve(
                connection, tenant, drafts, max_jobs=max_jobs, create_rate=create_rate, now=now
            )
        )

    async def activate(self, tenant: str, row: JobRow) -> Activation:
        """The reserved job runs: store it as ``row`` says, unless a later change is stored already.

        ``freed``: the reservation was given up meanwhile, so the workflow has to be undone.
        ``missing``: there never was a reservation.
        """
        [answer] = await self.activate_all(tenant, [row])
        return answer

    async def activate_all(self, tenant: str, rows: Sequence[JobRow]) -> list[Activation]:
        """:meth:`activate` for many in one transaction."""

        def work(connection: sa.Connection) -> list[Activation]:
            apply_jobs(connection, [(tenant, row) for row in rows])
            places = [(row.job, row.generation) for row in rows]
            found = connection.execute(
                sa.select(jobs.c.job, jobs.c.generation, jobs.c.freed).where(
                    jobs.c.tenant == tenant, sa.tuple_(jobs.c.job, jobs.c.generation).in_(places)
                )
            )
            freed = {(row.job, row.generation): row.freed for row in found}
            return [_activation(freed.get(place)) for place in places]

        return await self._database.write(work) if rows else []

    async def release(self, tenant: str, ref: str, *, now: datetime) -> bool:
        """Give up a reservation whose workflow does not exist; False if it is none (any more)."""
        return await self._database.write(lambda c: reservations.release(c, tenant, ref, now))

    async def stale_reservations(self, older_than: datetime, limit: int) -> list[StoredJob]:
        """Unfinished reservations of all tenants made before ``older_than``, oldest first."""
        return await self._database.read(lambda c: reservations.stale(c, older_than, limit))

    async def forget_keys(self, now: datetime) -> int:
        """Remove the Idempotency-Keys of all tenants that are older than a day; how many there were."""
        return await self._database.write(lambda c: reservations.forget_keys(c, now))

    async def apply(self, tenant: str, row: JobRow) -> bool:
        """Store a change of a job; False if it is not newer than what is stored, or not known."""
        return await self._database.write(lambda c: apply_jobs(c, [(tenant, row)])) > 0

    async def get(self, tenant: str, job_id: str) -> StoredJob | None:
        """The job of this id; None if there is none, or if it is only reserved or is deleted."""
        stored = await self._live(tenant, job_id)
        return None if stored is None or stored.status == "reserved" else stored

    async def by_ref(self, tenant: str, ref: str) -> StoredJob | None:
        """The row of one generation, whatever its status."""
        job, generation = job_of(ref)

        def work(connection: sa.Connection) -> StoredJob | None:
            query = sa.select(*jobs.c).where(
                jobs.c.tenant == tenant, jobs.c.job == job, jobs.c.generation == generation
            )
            row = connection.execute(query).one_or_none()
            return None if row is None else from_row(row)

        return await self._database.read(work)

    async def list(
        self,
        tenant: str,
        *,
        status: Sequence[Literal["active", "paused", "completed"]] | None = None,
        labels: Mapping[str, str] | None = None,
        target: str | None = None,
        outcome: Sequence[Outcome] | None = None,
        q: str | None = None,
        group: str | None = None,
        sort: JobSort = "id",
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[StoredJob]:
        """Jobs by id, or the newest first and by id among equals (JobFilter says what narrows them)."""
        filters = JobFilter(status, labels or {}, target, outcome, q, group=group)
        return await self.page(tenant, filters, sort=sort, limit=limit, cursor=cursor)

    async def page(
        self,
        tenant: str,
        filters: JobFilter,
        *,
        sort: JobSort = "id",
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[StoredJob]:
        """:meth:`list` for a filter that is made already."""
        return await self._database.read(
            lambda connection: job_list.page_of_jobs(
                connection, tenant, filters, sort=sort, limit=limit, cursor=cursor
            )
        )

    async def count(self, tenant: str, filters: JobFilter) -> int:
        """How many jobs hold all conditions."""
        return await self._database.read(lambda c: job_list.count_of_jobs(c, tenant, filters))

    async def overdue(self, before: datetime, limit: int) -> Sequence[StoredJob]:
        """Jobs of all tenants that should have fired before this instant, by the index; oldest first."""
        query = (
            sa.select(*jobs.c)
            .where(jobs.c.next_fires_at.is_not(None), jobs.c.next_fires_at < before)
            .where(jobs.c.status == "active")
            .order_by(jobs.c.next_fires_at)
            .limit(limit)
        )
        return await self._database.read(lambda c: [from_row(row) for row in c.execute(query)])

    async def _live(self, tenant: str, job_id: str) -> StoredJob | None:
        def work(connection: sa.Connection) -> StoredJob | None:
            query = sa.select(*jobs.c).where(jobs.c.tenant == tenant, jobs.c.job == job_id, sa.text(LIVE))
            row = connection.execute(query).one_or_none()
            return None if row is None else from_row(row)

        return await self._database.read(work)


def _activation(freed: bool | None) -> Activation:
    if freed is None:
        return "missing"
    return "freed" if freed else "active"
