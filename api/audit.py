"""Noting accepted changes in the audit log, without making any change wait for the database.

An entry waits in memory while the database is away. What cannot be kept there any longer is written
to the log, whole, and counted: nothing is lost in silence, and no change fails for its entry.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from itertools import islice

from prometheus_client import Counter, Gauge

from api.auth.principal import Principal
from api.clock import Clock, RandomName
from api.request_id import current_request_id
from infra.database.audit import AuditEntry, AuditLog
from infra.database.errors import DatabaseRejected, DatabaseUnavailable

log = logging.getLogger(__name__)

CAPACITY = 10_000
WAIT_S = 1.0
BATCH = 200
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
CLOSE_WITHIN_S = 1.0

WAITING = Gauge("carillon_audit_waiting", "Audit entries that are not in the database yet.")
DROPPED = Counter("carillon_audit_dropped_total", "Audit entries that are in the log only.")


class Audit:
    """``run`` writes for as long as the application lives; ``note`` is all that endpoints call."""

    def __init__(
        self, entries: AuditLog, clock: Clock, random_name: RandomName, *, capacity: int = CAPACITY
    ) -> None:
        self._entries = entries
        self._clock = clock
        self._random_name = random_name
        self._capacity = capacity
        self._queue: deque[tuple[AuditEntry, asyncio.Future[None]]] = deque()
        self._work = asyncio.Event()
        self._away = False

    async def note(
        self,
        caller: Principal,
        operation: str,
        job: str | None,
        before: int | None,
        after: int | None,
        *,
        change: str | None = None,
    ) -> None:
        """Call it once a change is accepted. Never raises; waits a second at most, for the database.

        ``before`` and ``after`` are revisions, equal where the definition stays (a pause), None where
        there is none. ``change`` names the change: a repeat of it is the same entry, not another one.
        """
        entry = AuditEntry(
            tenant=caller.tenant,
            id=_id_of(operation, job, change) if change else self._random_name(),
            at=self._clock(),
            by=caller.subject,
            operation=operation,
            job=job,
            from_revision=before,
            to_revision=after,
            request_id=current_request_id(),
        )
        if len(self._queue) >= self._capacity:
            _drop(entry, "too many wait for the database")
            return
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((entry, stored))
        WAITING.set(len(self._queue))
        self._work.set()
        if not self._away:
            await asyncio.wait([stored], timeout=WAIT_S)

    async def run(self) -> None:
        """Writes what is noted until it is cancelled; pauses for up to five seconds after a failure."""
        pause = 0.0
        while True:
            await self._work.wait()
            if await self._write():
                self._away, pause = False, 0.0
                continue
            if not self._away:
                log.warning("audit entries wait for the database")
            self._away = True
            pause = min(max(2 * pause, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            await asyncio.sleep(pause)

    async def close(self) -> None:
        """Writes what is left, for a second at most; the rest goes to the log. After ``run`` has ended."""
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                while self._queue and await self._write():
                    pass
        except TimeoutError:
            log.warning("the database does not take the last audit entries in time")
        for entry, _ in self._queue:
            _drop(entry, "the process ends")
        self._settle(len(self._queue))

    async def _write(self) -> bool:
        """Whether the database took part."""
        batch = [entry for entry, _ in islice(self._queue, BATCH)]
        try:
            await self._entries.write(batch)
        except DatabaseUnavailable as error:
            log.debug("audit entries are not stored yet: %s", error)
            return False
        except DatabaseRejected:
            for entry in batch:
                if not await self._write_one(entry):
                    return False
            return True
        except Exception:  # a fault of ours must not end the writing for good
            log.exception("audit entries could not be written")
            return False
        self._settle(len(batch))
        return True

    async def _write_one(self, entry: AuditEntry) -> bool:
        try:
            await self._entries.write([entry])
        except DatabaseUnavailable:
            return False
        except DatabaseRejected as error:
            _drop(entry, f"the database refuses it: {error}")
        self._settle(1)
        return True

    def _settle(self, count: int) -> None:
        for _ in range(count):
            _, stored = self._queue.popleft()
            if not stored.done():
                stored.set_result(None)
        WAITING.set(len(self._queue))
        if not self._queue:
            self._work.clear()


def _id_of(operation: str, job: str | None, change: str) -> str:
    return hashlib.sha256(f"{operation}\n{job or ''}\n{change}".encode()).hexdigest()[:32]


def _drop(entry: AuditEntry, why: str) -> None:
    DROPPED.inc()
    log.error("audit entry is not stored, %s: %s", why, entry)
