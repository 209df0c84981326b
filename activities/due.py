"""A held run's wait for its instant, by two clocks: never early, and late only where it is late."""

from __future__ import annotations

from datetime import datetime, timedelta

from activities.clock import AHEAD_LIMIT, RunClock, ServerOffset, sleep_until
from workflows.contracts.attempt import AttemptInput

HOLD_SLACK = timedelta(seconds=5)
"""A hold longer than the limit, or than it was to be, and this means that a clock was set back."""
WAKE_SLACK = timedelta(seconds=1)
"""A run that was held for its instant is not late by the moment that waking up takes."""


class Ended(Exception):
    """The run ends here, with this outcome and these fields of its report."""

    def __init__(self, outcome: str, **fields: object) -> None:
        super().__init__(outcome)
        self.outcome = outcome
        self.fields = fields


class Wait:
    """Every method but :attr:`is_over` raises Ended for a run that cannot wait here any longer."""

    def __init__(self, inp: AttemptInput, clock: RunClock, hold_limit: timedelta) -> None:
        self._inp = inp
        self._clock = clock
        self._longest = hold_limit + HOLD_SLACK
        self._begun = clock.elapsed()
        self._began_at = clock.now()
        self.time = max(inp.fires_at - self._began_at, timedelta(0))
        """How long the run is held; zero if it is due."""

    def refuse_wrong_clock(self, offset: ServerOffset, started: datetime) -> None:
        """At the start of a hold, which was at ``started`` by the server's clock: to one that runs ahead
        a run may seem to be due that is not."""
        if offset.is_ahead and self._inp.fires_at > started:
            raise Ended("returned", reason="clock_ahead")
        if self.time > self._longest:
            raise self._clock_behind()

    async def sleep_until(self, instant: datetime) -> None:
        """Never early; a hold that turns out longer than it can be means the clock was set back."""
        patience = self._begun + (self.time + HOLD_SLACK).total_seconds()
        if not await sleep_until(self._clock, instant, patience):
            raise self._clock_behind()
        self.refuse_clock_set_ahead()

    def refuse_clock_set_ahead(self) -> None:
        """A hold that turns out shorter than it was: from here the server's timer decides."""
        lived = timedelta(seconds=self._clock.elapsed() - self._begun)
        if self.time > timedelta(0) and self._clock.now() - self._began_at - lived > AHEAD_LIMIT:
            raise Ended("returned", reason="clock_ahead")

    def refuse_late(self, deliveries: int) -> None:
        """Tested where the run may be due for the first time: at the start, and after each sleep.

        By the server's time: a worker whose clock runs ahead must not pass over what is on time.
        """
        bound = self._inp.not_after
        if bound is None or deliveries > 0:
            return
        if self.time > timedelta(0):
            bound = max(bound, self._inp.fires_at + WAKE_SLACK)
        if self._clock.server_now() > bound:
            raise Ended("late")

    @property
    def is_over(self) -> bool:
        return self._clock.now() >= self._inp.fires_at

    def _clock_behind(self) -> Ended:
        return Ended("returned", reason="clock_behind", resume_at=self._inp.fires_at)
