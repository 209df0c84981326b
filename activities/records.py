"""The flush activity: records that did not ride on an attempt."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from temporalio import activity

from workflows.contracts.names import FLUSH_ACTIVITY
from workflows.contracts.records import Record

FLUSH_WAIT = timedelta(seconds=5)


class Recorder(Protocol):
    """The worker's way to the database; nothing here waits longer than it says."""

    async def store(self, records: Sequence[Record], wait: timedelta) -> bool:
        """Whether all of ``records`` were committed within ``wait``."""
        ...

    def offer(self, records: Sequence[Record]) -> None:
        """Queue records that nobody waits for and that may be dropped."""
        ...


class Records:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @activity.defn(name=FLUSH_ACTIVITY)
    async def flush(self, records: list[Record]) -> bool:
        """Whether the records are stored; the workflow keeps them otherwise."""
        return await self._recorder.store(records, FLUSH_WAIT)
