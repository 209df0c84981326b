"""A host whose clock runs ahead of the server's: told once, and again when it does not any more.

One that runs behind makes no run early and, once a start has proven it, none late; that is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from temporalio.service import RPCError

from activities.clock import AHEAD_LIMIT, ServerOffset
from workflows.contracts.incident import INSTALLATION, IncidentWord

LOOK_EVERY = 5.0

log = logging.getLogger(__name__)


class ClockWatch:
    """It concerns no tenant, so it goes to the installation's alert URL only. All workers of a host have
    one clock, and say the same of it."""

    def __init__(
        self,
        offset: ServerOffset,
        host: str,
        *,
        tell: Callable[[IncidentWord], Awaitable[None]],
        now: Callable[[], datetime],
    ) -> None:
        self._offset = offset
        self._host = host
        self._tell = tell
        self._now = now
        self._told: bool | None = None
        """What was told last. The first look tells in any case: the process before may have told
        otherwise."""
        self._was_behind = False

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY)

    async def look(self) -> None:
        """Tell what has changed; with the server away, at the next look."""
        self._log_behind()
        seconds, ahead = self._offset.seconds, self._offset.is_ahead
        if seconds is None or ahead == self._told:
            return
        limit = AHEAD_LIMIT.total_seconds()
        detail = (
            f"the clock of {self._host} is {seconds:.1f} s ahead of the Temporal server's (more than "
            f"{limit:g} s): its workers hold no runs until they are due"
            if ahead
            else f"the clock of {self._host} is right again"
        )
        word = IncidentWord(
            tenant=INSTALLATION,
            kind="clock_ahead",
            subject=self._host,
            open=ahead,
            detail=detail,
            at=self._now() - timedelta(seconds=seconds),  # by the server's clock: ours may be set back
        )
        try:
            await self._tell(word)
        except (RPCError, TimeoutError) as error:
            log.warning("what this host's clock does was not told: %s", error)
        else:
            self._told = ahead

    def _log_behind(self) -> None:
        seconds, behind = self._offset.seconds, self._offset.is_behind
        if seconds is None or behind == self._was_behind:
            return
        self._was_behind = behind
        if behind:
            log.warning(
                "the clock of %s is %.1f s behind the Temporal server's, or both were set back by as much "
                "within ten minutes: set it right",
                self._host,
                -seconds,
            )
        else:
            log.warning("the clock of %s is not behind the Temporal server's any more", self._host)
