"""Server-sent events: what happens to a tenant's jobs and executions, as it is written to the database.

One task a process asks the database which tenants have news, twice a second and only while somebody
listens; each stream then reads its own news, so a slow client holds back nobody and costs one page.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any

from api.auth.principal import Principal
from api.clock import Clock
from api.jobs.answers import execution_document
from api.jobs.reading import document_of_row
from api.problems import Kind, ProblemError
from infra.database.errors import DatabaseError
from infra.database.executions import StoredExecution
from infra.database.feed import Change, Feed, Place

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5
LONGEST_PAUSE_S = 5.0
HEARTBEAT_S = 15.0
PAGE = 100
MAX_STREAMS = 1000
"""Of all tenants, in one process."""
RETRY_MS = 2000
"""After so long a client that lost its stream opens it again."""
HEARTBEAT = ": still here\n\n"


class Streams:
    """The open streams of this process."""

    def __init__(
        self,
        feed: Feed,
        clock: Clock,
        *,
        per_tenant: int,
        look_every_s: float = LOOK_EVERY_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._feed = feed
        self._clock = clock
        self._per_tenant = per_tenant
        self._look_every_s = look_every_s
        self._heartbeat_s = heartbeat_s
        self._open: Counter[str] = Counter()
        self._heads: dict[str, int] = {}
        self._looked = asyncio.Event()
        self._wanted = asyncio.Event()
        self._ending = False

    def __len__(self) -> int:
        return self._open.total()

    async def run(self) -> None:
        """Looks for news while there are listeners, until it is cancelled."""
        pause = self._look_every_s
        while True:
            await self._wanted.wait()
            try:
                self._heads = await self._feed.heads(tuple(self._open))
                pause = self._look_every_s
            except DatabaseError as error:
                log.info("event streams wait for the database: %s", error)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            self._wake()
            await asyncio.sleep(pause)

    def end(self) -> None:
        """Ends every stream within a moment, and takes no new one: the process stops."""
        self._ending = True
        self._wake()

    @contextlib.contextmanager
    def place(self, tenant: str) -> Iterator[None]:
        """A place for one stream, for as long as it is held. Raises 429 or 503 where there is none."""
        if self._ending or len(self) >= MAX_STREAMS:
            raise ProblemError(
                Kind.BUSY,
                "This process takes no more event streams; try again.",
                headers={"Retry-After": "2"},
            )
        if self._open[tenant] >= self._per_tenant:
            raise ProblemError(
                Kind.TOO_MANY_REQUESTS,
                f"The tenant has {self._per_tenant} event streams open here; close one, or share one.",
                headers={"Retry-After": "5"},
            )
        self._open[tenant] += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]
                self._heads.pop(tenant, None)
            if not self._open:
                self._wanted.clear()

    async def begin(self, last_event_id: str | None) -> Place:
        """Behind the event a client saw last, or behind everything there is. Raises BadCursor."""
        present = await self._feed.present()
        return present if last_event_id is None else min(present, Place.parse(last_event_id))

    async def events(self, caller: Principal, begin: Place, job: str | None) -> AsyncIterator[str]:
        """The text of the stream; ends when the token has expired, or with the process."""
        place = begin
        yield f"retry: {RETRY_MS}\nid: {place.text()}\nevent: ready\ndata: {{}}\n\n"
        spoke = self._now()
        more = True  # what a client missed is there already
        while not self._is_over(caller):
            if more or self._heads.get(caller.tenant, 0) > place.position:
                try:
                    reading = await self._feed.read(caller.tenant, place, job=job, limit=PAGE)
                except DatabaseError:
                    more = True
                else:
                    if reading.changes:
                        yield "".join(_event(change, self._clock()) for change in reading.changes)
                        spoke = self._now()
                    place, more = reading.upto, reading.more
                    if more:
                        continue
            await self._next_look()
            if self._now() - spoke >= self._heartbeat_s:
                yield HEARTBEAT
                spoke = self._now()

    def _is_over(self, caller: Principal) -> bool:
        return self._ending or (caller.expires_at is not None and caller.expires_at <= self._clock())

    async def _next_look(self) -> None:
        """Until the next look for news; in an outage of the database, until a heartbeat may be due."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(1.0, self._heartbeat_s)):
                await self._looked.wait()

    def _wake(self) -> None:
        looked, self._looked = self._looked, asyncio.Event()
        looked.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _event(change: Change, now: datetime) -> str:
    name, document = _told(change, now)
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=False)  # one line: JSON escapes breaks
    return f"id: {change.place.text()}\nevent: {name}\ndata: {data}\n\n"


def _told(change: Change, now: datetime) -> tuple[str, dict[str, Any]]:
    what = change.what
    if isinstance(what, StoredExecution):
        return "execution", execution_document(what.job, what.row, what.attempts)
    if what.status == "deleted":
        return "job_deleted", {"id": what.job, "revision": what.revision}
    return "job", document_of_row(what, now)
