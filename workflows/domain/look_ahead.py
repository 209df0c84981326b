"""How long before it is due a run is handed to a worker (docs/decisions/0002)."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b

MIN_LEAD = timedelta(seconds=2)
HOLD_LIMIT = timedelta(seconds=30)
"""L, the installation's default hold limit."""
TIMER_FLOOR = timedelta(seconds=1)
"""Server timers under a second are not to be relied on: what is due sooner is held instead."""
ZONE_SLEEP = (timedelta(hours=18), timedelta(hours=24))
"""A zone-bound job plans again at least this often, so that new tzdata reaches it within a day."""
LONGEST_SLEEP = timedelta(days=30)


def fraction(*parts: str) -> float:
    """A stable hash of ``parts`` in ``[0, 1)``."""
    digest = blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def lead(tenant: str, ref: str, limit: timedelta = HOLD_LIMIT) -> timedelta:
    """Stable per job, in ``[2 s, limit)``: jobs that share an instant wake spread over the limit."""
    room = max(limit - MIN_LEAD, timedelta(0))
    return MIN_LEAD + room * fraction("lead", tenant, ref)


def wake_at(fires_at: datetime, now: datetime, lead_time: timedelta, limit: timedelta) -> datetime | None:
    """When to stop sleeping for a run due at ``fires_at``; None: hand it to a worker now."""
    if fires_at - now <= limit:
        return None
    wake = fires_at - lead_time
    return wake if wake - now > TIMER_FLOOR else None


def longest_sleep(zone_bound: bool, tenant: str, ref: str) -> timedelta:
    """The longest a job sleeps before it plans again."""
    if not zone_bound:
        return LONGEST_SLEEP
    shortest, longest = ZONE_SLEEP
    return shortest + (longest - shortest) * fraction("sleep", tenant, ref)
