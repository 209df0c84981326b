"""Instants of ``every`` and of the one-off: arithmetic on whole seconds."""

from __future__ import annotations

from dataclasses import dataclass

from workflows.domain.recurrence_instants import Count

_MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class IntervalInstants:
    """``anchor + n * every`` for n = 0, 1, 2, …, in elapsed time, each rounded up to a whole second.

    ``anchor`` is seconds since the epoch, ``micros`` the interval in microseconds, at least a second.
    """

    anchor: int
    micros: int

    def at_or_after(self, instant: int) -> int | None:
        return self._instant(self._index(instant))

    def at_or_before(self, instant: int) -> int | None:
        since = instant - self.anchor
        return None if since < 0 else self._instant(since * _MICRO // self.micros)

    def count(self, start: int, end: int) -> Count:
        """How many instants lie in ``[start, end)``."""
        return Count(max(0, self._index(end) - self._index(start)))

    def _index(self, instant: int) -> int:
        """The number of the first instant that is not earlier."""
        since = instant - self.anchor
        return 0 if since <= 0 else (since - 1) * _MICRO // self.micros + 1

    def _instant(self, n: int) -> int:
        return self.anchor - (n * self.micros // -_MICRO)


@dataclass(frozen=True, slots=True)
class OnceInstants:
    """One instant, in seconds since the epoch."""

    at: int

    def at_or_after(self, instant: int) -> int | None:
        return self.at if instant <= self.at else None

    def at_or_before(self, instant: int) -> int | None:
        return self.at if instant >= self.at else None

    def count(self, start: int, end: int) -> Count:
        return Count(int(start <= self.at < end))
