"""Idempotency-Keys of calls that change a job, as far as this process has seen them.

A creation's key is kept by the index. A trigger, a pause and a resume are safe to repeat without any
table, since the job remembers requests and updates; what is checked here is that the same key does not
come with another request.
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
