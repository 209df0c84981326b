"""What every kind of schedule can be asked, in whole seconds since the epoch."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Count(NamedTuple):
    """How many; ``complete`` is False when counting stopped at a bound and ``total`` is a lower one."""

    total: int
    complete: bool = True


class Instants(Protocol):
    """A set of instants. Forward and backward give the same one."""

    def at_or_after(self, instant: int) -> int | None:
        """The first one that is not earlier, or None when the search found none."""

    def at_or_before(self, instant: int) -> int | None:
        """The last one that is not later, or None when the search found none."""

    def count(self, start: int, end: int) -> Count:
        """How many lie in ``[start, end)``."""
