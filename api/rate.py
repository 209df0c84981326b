"""How many requests a tenant may make: a token bucket each, in this process."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

from api.problems import Kind, ProblemError

BURST_S = 2.0
"""A full bucket, in seconds of the rate."""
REMEMBERED = 10_000
"""Tenants with a bucket; the one that was away longest is forgotten, and begins with a full one."""


class RequestRate:
    """Several processes each allow the whole rate; the limit protects a process, it is no quota."""

    def __init__(
        self, per_second: float, monotonic: Callable[[], float], *, remembered: int = REMEMBERED
    ) -> None:
        self._rate = per_second
        self._full = max(1.0, BURST_S * per_second)
        self._monotonic = monotonic
        self._remembered = remembered
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, tenant: str) -> None:
        """One request more. Raises 429 with Retry-After when the tenant's bucket is empty."""
        now = self._monotonic()
        tokens, since = self._buckets.get(tenant, (self._full, now))
        tokens = min(self._full, tokens + (now - since) * self._rate)
        enough = tokens >= 1
        self._buckets[tenant] = (tokens - 1 if enough else tokens, now)
        self._buckets.move_to_end(tenant)
        if len(self._buckets) > self._remembered:
            self._buckets.popitem(last=False)
        if not enough:
            wait = max(1, math.ceil((1 - tokens) / self._rate))
            raise ProblemError(
                Kind.TOO_MANY_REQUESTS,
                f"The tenant makes more than {self._rate:g} requests a second; nothing was done. "
                "Send them more slowly, or use `POST /v1/jobs/batch`.",
                headers={"Retry-After": str(wait)},
            )

    def __len__(self) -> int:
        return len(self._buckets)
