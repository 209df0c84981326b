"""A holder's lease on its run: renewed by beats, proven by fences, doubted after standing still."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from temporalio import activity

from activities.clock import Clock
from activities.fence import Passed
from workflows.contracts.attempt import START_COUNTS_FOR, AttemptInput, HeartbeatDetails

if TYPE_CHECKING:
    from activities.attempt import Places

QUIET_BEFORE_FENCE = timedelta(seconds=0.5)
"""A beat that says held and is on its way still when the fence is passed may reach the server after it."""
BEAT_WITHOUT_COMMANDS = 1.0
"""A replaced run learns of it by a beat where the server cannot tell its worker; in seconds."""


class Lease:
    def __init__(
        self, inp: AttemptInput, info: activity.Info, places: Places, clock: Clock, hold_time: timedelta
    ) -> None:
        """``hold_time``: from now until the run is due, zero if it is."""
        self._inp = inp
        self._info = info
        self._places = places
        self._clock = clock
        self._hold_time = hold_time
        self._length = info.heartbeat_timeout or inp.definition.heartbeat_timeout
        self._begun = self._clock.elapsed()
        self._fenced: float | None = None
        self._said: HeartbeatDetails | None = None
        """What the server knows of the firing; nothing else may be said after it."""
        self._saying: HeartbeatDetails | None = None
        """What a fence on its way says: a beat that says less must not overtake it."""
        self.fence_at: datetime | None = None
        """When the first fence will be asked for; until then it is beat with ``held``."""
        self._beat_at = self._begun
        self._has_beaten = False
        self._stood_still = False

    @property
    def interval(self) -> float:
        """Seconds between two beats."""
        third = self._length.total_seconds() / 3
        if self._inp.definition.concurrency.policy == "replace" and not self._places.worker_commands:
            return min(third, BEAT_WITHOUT_COMMANDS)
        return third

    async def keep(self, held: Callable[[], HeartbeatDetails]) -> None:
        """Beat for ever; a hold shorter than half of the lease needs none. ``held``: what is said until
        the run has fired."""
        held_long = self._hold_time > self._length / 2
        while True:
            await self._clock.sleep(self.interval)
            self._notice_pause()
            if (fired := self._said or self._saying) is not None:
                self._beat(fired)
            elif self._is_quiet():
                continue
            elif held_long or self._clock.now() >= self._inp.fires_at:
                self._beat(held())

    def _is_quiet(self) -> bool:
        return self.fence_at is not None and self._clock.now() >= self.fence_at - QUIET_BEFORE_FENCE

    def say_fired(self, details: HeartbeatDetails) -> None:
        """Beat with ``details``, unless a fence has said so already."""
        if self._said is None:
            self._said = details
            self._beat(details)

    def _beat(self, details: HeartbeatDetails) -> None:
        self._has_beaten = True
        activity.heartbeat(details)

    # -- fences ------------------------------------------------------------------------------------

    def fence_holds(self) -> bool:
        """Whether a request may be written behind the last fence; a first start counts as one."""
        now = self._clock.elapsed()
        if self._fenced is not None:
            spread = self._places.fences.spread(self._hold_time)
            return now - self._fenced <= (spread + START_COUNTS_FOR).total_seconds()
        if self._info.attempt > 1:
            return False
        since_start = (self._clock.now() - self._info.started_time).total_seconds()
        return max(now - self._begun, since_start) <= START_COUNTS_FOR.total_seconds()

    async def pass_fence(self, details: HeartbeatDetails) -> Passed:
        """Ask once. ``details`` are said if no fence has been passed before."""
        self._saying = said = self._said or details
        begun = self._clock.elapsed()
        passed = await self._places.fences.pass_with(said, after_beats=self._has_beaten)
        if passed is Passed.YES:
            self._fenced, self._said = begun, said
            self._beat_at, self._stood_still = self._clock.elapsed(), False
        return passed

    async def is_sure(self, details: HeartbeatDetails) -> bool:
        """Whether the run is ours beyond doubt. Asked of the server, once, if the process has stood still
        for so long that its lease may have been lost meanwhile."""
        self._notice_pause()
        if not self._stood_still:
            return True
        return await self.pass_fence(details) in (Passed.YES, Passed.CANCELLED)

    def _notice_pause(self) -> None:
        now = self._clock.elapsed()
        self._stood_still |= now - self._beat_at >= self._length.total_seconds() * 2 / 3
        self._beat_at = now
