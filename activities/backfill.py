"""Which occurrences a backfill runs: the schedule's arithmetic, and what the history tells of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError

from infra.database.executions import ToldOutcome
from workflows.contracts import names
from workflows.contracts.backfill import BackfillPage, PageAsked, Paged, Timing
from workflows.contracts.failures import RULE_BROKEN
from workflows.contracts.records import attempt_after
from workflows.domain.errors import RuleError
from workflows.domain.recurrence import Recurrence, compile_schedule

CHUNK = 500
"""Occurrences the history is asked about at once."""
CHUNKS_MAX = 20
"""Then the page is given as it is: most of the range may have succeeded already."""
_TICK = timedelta(microseconds=1)


class Outcomes(Protocol):
    """The history. Raises DatabaseUnavailable without an answer in time."""

    async def outcomes(
        self, tenant: str, ref: str, first: datetime, last: datetime, *, succeeded: bool = False
    ) -> list[ToldOutcome]: ...


def recurrence_of(timing: Timing, *, tenant: str, job: str) -> Recurrence:
    """Raises RuleError for a schedule that is not accepted (any more)."""
    return compile_schedule(
        timing.schedule,
        tenant=tenant,
        job=job,
        spread=timing.spread,
        starts_at=timing.starts_at,
        ends_at=timing.ends_at,
        except_=timing.except_,
    )


def first_of(recurrence: Recurrence, from_: datetime, to: datetime, limit: int) -> list[datetime]:
    """The first occurrences in ``[from_, to)``, at most ``limit``."""
    return list(islice(recurrence.forward(from_ - _TICK, to - _TICK), limit))


class Backfills:
    def __init__(self, history: Outcomes) -> None:
        self._history = history

    @activity.defn(name=names.BACKFILL_PAGE_ACTIVITY)
    async def page(self, asked: PageAsked) -> BackfillPage:
        """Raises ``RuleBroken`` for a schedule that cannot be read, DatabaseUnavailable for ``missing``."""
        try:
            recurrence = recurrence_of(asked.timing, tenant=asked.tenant, job=asked.job)
        except RuleError as error:
            raise ApplicationError(str(error), type=RULE_BROKEN, non_retryable=True) from None
        found: list[Paged] = []
        cursor = asked.from_
        for _ in range(CHUNKS_MAX):
            wanted = asked.limit - len(found) if asked.only == "all" else CHUNK
            until = min(asked.to, asked.settled + _TICK)
            chunk = await asyncio.to_thread(first_of, recurrence, cursor, until, wanted)
            if chunk:
                found += await self._of(asked, chunk)
                cursor = chunk[-1] + _TICK
            if len(chunk) < wanted or len(found) >= asked.limit:
                break
        if len(found) > asked.limit:
            cursor, found = found[asked.limit].at, found[: asked.limit]
        following = await asyncio.to_thread(first_of, recurrence, cursor, asked.to, 1)
        return BackfillPage(
            occurrences=found, cursor=following[0] if following else asked.to, last=not following
        )

    async def _of(self, asked: PageAsked, chunk: Sequence[datetime]) -> list[Paged]:
        """Those of a chunk that are to run; of ``missing`` the ones without a success under any key."""
        if asked.only == "all":
            return [Paged(at=at) for at in chunk]
        told = await self._history.outcomes(asked.tenant, asked.ref, chunk[0], chunk[-1])
        succeeded = {names.occurrence_key(row.key) for row in told if row.outcome == "succeeded"}
        attempts = {row.key: attempt_after(row.seq) for row in told}
        keys = {at: names.scheduled_key(asked.tenant, asked.ref, at) for at in chunk}
        return [
            Paged(at=at, attempt=attempts.get(key, 1)) for at, key in keys.items() if key not in succeeded
        ]
