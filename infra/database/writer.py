"""The records channel of a worker process: many callers, one writing task, few transactions.

Nobody waits for the database longer than they say. A caller that gets False keeps its records and sends
them again later; what is written twice counts once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from infra.database import records as rows
from infra.database.engine import Database
from infra.database.errors import DatabaseRejected, DatabaseUnavailable
from workflows.contracts.records import Record

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_RECORD_BYTES = 2000
"""About what a record takes in memory beside its texts."""


@dataclass(slots=True)
class WriterCounts:
    """Since the start of the writer; for metrics."""

    stored: int = 0
    """Records committed."""
    batches: int = 0
    """Transactions committed."""
    dropped: int = 0
    """Offered records that found the queue full, or the writer closed or broken."""
    rejected: int = 0
    """Records that the database refuses for ever; each is logged as an error."""
    failures: int = 0
    """Transactions that failed."""


@dataclass(slots=True)
class _Entry:
    records: tuple[Record, ...]
    size: int
    waiter: asyncio.Future[bool] | None
    """None: offered, so nobody else keeps these records."""

    def resolve(self, stored: bool) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(stored)


class RecordWriter:
    """Batches records into transactions, one at a time and not more often than each ``interval``.

    What is offered waits up to ``idle`` for company, so that the row of a run that has fired and the
    one of its end, soon after, are merged into one. After a failure the writer pauses, for 0.1 to 2 s,
    and answers every :meth:`store` with False at once.
    """

    def __init__(
        self,
        database: Database,
        *,
        interval: timedelta = timedelta(milliseconds=20),
        idle: timedelta = timedelta(milliseconds=250),
        batch_size: int = 400,
        max_records: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self._database = database
        self._interval = interval.total_seconds()
        self._idle = idle.total_seconds()
        self._batch_size = batch_size
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._queue: deque[_Entry] = deque()
        self._queued = 0
        self._bytes = 0
        self._waiting = 0
        self._work = asyncio.Event()
        self._urgent = asyncio.Event()
        self._closing = asyncio.Event()
        self._paused = False
        self._pause = 0.0
        self._task: asyncio.Task[None] | None = None
        self.counts = WriterCounts()

    @property
    def queued(self) -> int:
        """Records in the queue, without those of the transaction under way."""
        return self._queued

    @property
    def available(self) -> bool:
        """False for a moment after each failure."""
        return not self._paused

    def start(self) -> None:
        """Begin to write, on the running event loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="record-writer")

    async def close(self, timeout: timedelta = timedelta(seconds=5)) -> None:
        """Take nothing more, write what is queued for at most ``timeout``, answer whoever still waits."""
        for event in (self._closing, self._work, self._urgent):
            event.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout.total_seconds())
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        while self._queue:
            self._give_up(self._take())

    async def store(self, records: Sequence[Record], wait: timedelta) -> bool:
        """Whether all of ``records`` were committed within ``wait``.

        False at once when the queue is full or the database was away a moment ago. After False they may
        get stored all the same. A record that the database will never accept counts as stored: it is
        logged, and nothing would come of sending it again.
        """
        if not records:
            return True
        entry = self._entry(records, asyncio.get_running_loop().create_future())
        if self._paused or not self._has_room(entry):
            return False
        self._put(entry)
        assert entry.waiter is not None
        try:
            async with asyncio.timeout(wait.total_seconds()):
                return await entry.waiter
        except TimeoutError:
            return False

    def offer(self, records: Sequence[Record]) -> None:
        """Queue records that nobody waits for; dropped, and counted, when the queue is full."""
        entry = self._entry(records, None)
        if self._has_room(entry):
            self._put(entry)
        else:
            self._give_up(entry)

    def _entry(self, records: Sequence[Record], waiter: asyncio.Future[bool] | None) -> _Entry:
        return _Entry(tuple(records), sum(map(_size, records)), waiter)

    def _has_room(self, entry: _Entry) -> bool:
        return (
            not self._closing.is_set()
            and self._queued + len(entry.records) <= self._max_records
            and self._bytes + entry.size <= self._max_bytes
        )

    def _put(self, entry: _Entry, *, first: bool = False) -> None:
        (self._queue.appendleft if first else self._queue.append)(entry)
        self._queued += len(entry.records)
        self._bytes += entry.size
        self._waiting += entry.waiter is not None
        self._work.set()
        if self._is_urgent():
            self._urgent.set()

    def _take(self) -> _Entry:
        entry = self._queue.popleft()
        self._queued -= len(entry.records)
        self._bytes -= entry.size
        self._waiting -= entry.waiter is not None
        return entry

    def _give_up(self, entry: _Entry) -> None:
        """Whoever waits keeps the records; what was offered is lost."""
        entry.resolve(False)
        if entry.waiter is None:
            self.counts.dropped += len(entry.records)

    def _is_urgent(self) -> bool:
        return self._waiting > 0 or self._queued >= self._batch_size or self._closing.is_set()

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        began = clock() - self._interval
        while await self._something_to_write():
            await self._sleep(began + self._interval - clock())
            began = clock()
            if not await self._write(self._next_batch()):
                if self._closing.is_set():
                    return
                await self._sleep(self._pause)
                self._paused = False

    async def _something_to_write(self) -> bool:
        """Wait until somebody waits, or what was offered has been there long enough; False: it is over."""
        while not self._queue:
            if self._closing.is_set():
                return False
            self._work.clear()
            await self._work.wait()
        if not self._is_urgent():
            self._urgent.clear()
            await _wait(self._urgent, self._idle)
        return True

    async def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            await _wait(self._closing, seconds)

    def _next_batch(self) -> list[_Entry]:
        batch = [self._take()]
        count = len(batch[0].records)
        while self._queue and count + len(self._queue[0].records) <= self._batch_size:
            batch.append(self._take())
            count += len(batch[-1].records)
        return batch

    async def _write(self, batch: list[_Entry]) -> bool:
        """Whether the database took part; if not, those who wait are told and the rest is dropped."""
        try:
            await self._settle(batch)
        except DatabaseUnavailable as error:
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            self._paused = True
            log = logger.warning if self.counts.failures == 0 or self._pause == _FIRST_PAUSE else logger.debug
            log("records are not stored, their jobs keep them and send them again: %s", error)
            self.counts.failures += 1
            self._answer_all(batch)
            return False
        except BaseException:
            for entry in batch:
                self._give_up(entry)
            raise
        if self._pause:
            logger.info("records are stored again")
        self._pause = 0.0
        return True

    def _answer_all(self, batch: list[_Entry]) -> None:
        """Tell everybody who waits, now rather than at the end of their wait.

        What was only offered is dropped: kept through an outage, the row of a run that has fired
        would outlive the run, whose end may be counted in another row by then.
        """
        while self._queue:
            batch.append(self._take())
        for entry in batch:
            self._give_up(entry)

    async def _settle(self, entries: list[_Entry]) -> None:
        """Write all in one transaction; where that is refused, halves, until the culprit is alone."""
        try:
            await self._commit([record for entry in entries for record in entry.records])
        except DatabaseUnavailable:
            raise
        except Exception:
            if len(entries) == 1:
                entries[0].resolve(await self._one_by_one(entries[0].records))
                return
            middle = len(entries) // 2
            await self._settle(entries[:middle])
            await self._settle(entries[middle:])
        else:
            for entry in entries:
                entry.resolve(True)

    async def _one_by_one(self, records: Sequence[Record]) -> bool:
        """Whether each is stored, or refused for good; a defect of ours leaves it with the caller."""
        settled = True
        for record in records:
            try:
                await self._commit([record])
            except DatabaseUnavailable:
                raise
            except DatabaseRejected as error:
                self.counts.rejected += 1
                logger.error("a record is lost, the database refuses it: %s: %s", _describe(record), error)
            except Exception:
                settled = False
                self.counts.failures += 1
                logger.exception("a record could not be written: %s", _describe(record))
        return settled

    async def _commit(self, records: Sequence[Record]) -> None:
        await self._database.write(lambda connection: rows.write(connection, records))
        self.counts.stored += len(records)
        self.counts.batches += 1


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _size(record: Record) -> int:
    size = _RECORD_BYTES
    if record.attempt is not None:
        size += len(record.attempt.error or "") + len(record.attempt.answer or "")
    if record.job is not None:
        # Its body may be large; measuring it would cost more than a generous guess.
        size += 16 * 1024
    return size


def _describe(record: Record) -> str:
    """Enough to find the run by, without what its target answered."""
    parts = [f"{record.tenant}/{record.ref}"]
    if record.execution is not None:
        parts.append(f"{record.execution.key} {record.execution.outcome} seq {record.execution.seq}")
    if record.attempt is not None:
        parts.append(f"attempt {record.attempt.execution_id} {record.attempt.outcome}")
    if record.progress is not None:
        parts.append(f"run {record.progress.run_number}")
    if record.job is not None:
        parts.append(f"change {record.job.change} {record.job.status}")
    return ", ".join(parts)
