"""Idempotency-Keys of calls that change something, as far as this process has seen them.

What is checked here, that the same key does not come with another request, holds without the database.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timedelta

from api.idempotency import IdempotencyKey
from api.problems import Kind, ProblemError

KEPT = timedelta(hours=24)
REMEMBERED = 50_000


class RecentKeys:
    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._seen: OrderedDict[tuple[str, str], tuple[str, datetime]] = OrderedDict()
        self._remembered = remembered

    def check(self, key: IdempotencyKey, now: datetime) -> None:
        """Raises 422 when the key was used for another request within its 24 hours."""
        place = (key.tenant, key.key)
        known = self._seen.get(place)
        if known is not None and now - known[1] < KEPT:
            if known[0] != key.fingerprint:
                raise ProblemError(
                    Kind.IDEMPOTENCY_MISMATCH,
                    "The Idempotency-Key belongs to another request; use a new key for a new one.",
                )
            return
        self._seen[place] = (key.fingerprint, now)
        self._seen.move_to_end(place)
        if len(self._seen) > self._remembered:
            self._seen.popitem(last=False)
