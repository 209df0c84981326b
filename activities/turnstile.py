"""The turnstile: bounds the runs that a process fires at once, and shares its places fairly.

By weighted fair order over tenants, then priority, then due time.
The order is start-time fair queueing (Goyal, Vin, Cheng 1996) with runs of equal cost: each start
moves its tenant on by ``1 / weight`` of virtual time, and the tenant that is furthest behind is
next. A tenant that had nothing waiting comes back at the present virtual time, so idleness earns
no credit, and no tenant can keep another from its share.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import count
from math import isfinite

MIN_WEIGHT, MAX_WEIGHT = 0.001, 1000.0
"""The bounds of a fairness weight in Temporal, which the same number is given to."""


@dataclass(eq=False, slots=True)
class Ticket:
    """One waiting run. ``gone`` once it no longer waits; it then costs its tenant nothing."""

    tenant: str
    weight: float
    rank: tuple[int, datetime, int]
    """Priority, due, arrival: the order among the runs of one tenant."""
    gone: bool = False


@dataclass(eq=False, slots=True)
class _Tenant:
    start: float
    """Virtual time at which its next run starts."""
    waiting: list[tuple[tuple[int, datetime, int], Ticket]] = field(default_factory=list)
    """A heap; tickets that are gone are dropped when they reach the top, or when they are half of it."""
    gone: int = 0
    entry: int = 0
    """Number of its valid entry in the heap of tenants; older entries are skipped."""


class FairQueue:
    """The pure core: tickets in, tickets out, O(log n) each, no clock and no event loop."""

    def __init__(self) -> None:
        self._virtual = 0.0
        self._tenants: dict[str, _Tenant] = {}
        """Those with something waiting."""
        self._finish: dict[str, float] = {}
        """Where tenants without anything waiting left off, as long as it lies ahead of the present."""
        self._heads: list[tuple[float, tuple[int, datetime, int], int, str]] = []
        self._arrivals = count()
        self._entries = count(1)
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def push(self, tenant: str, *, weight: float, priority: int, due: datetime) -> Ticket:
        """Add a waiting run. ``weight`` is brought into the bounds; one that is no number is 1."""
        weight = min(max(weight, MIN_WEIGHT), MAX_WEIGHT) if isfinite(weight) else 1.0
        ticket = Ticket(tenant, weight, (priority, due, next(self._arrivals)))
        queue = self._tenants.get(tenant)
        if queue is None:
            start = max(self._virtual, self._finish.pop(tenant, 0.0))
            queue = self._tenants[tenant] = _Tenant(start)
        heappush(queue.waiting, (ticket.rank, ticket))
        self._waiting += 1
        if queue.waiting[0][1] is ticket:
            self._stand(tenant, queue)
        return ticket

    def discard(self, ticket: Ticket) -> None:
        """Take a ticket out that has not been popped; a second time does nothing."""
        if ticket.gone:
            return
        ticket.gone = True
        self._waiting -= 1
        queue = self._tenants[ticket.tenant]
        queue.gone += 1
        if queue.waiting[0][1] is ticket or queue.gone * 2 > len(queue.waiting):
            self._advance(ticket.tenant, queue)

    def peek(self) -> Ticket:
        """The run that is next, left where it is. Raises IndexError if none waits."""
        while True:
            _, _, entry, tenant = self._heads[0]
            queue = self._tenants.get(tenant)
            if queue is not None and queue.entry == entry:
                return queue.waiting[0][1]
            heappop(self._heads)

    def pop(self) -> Ticket:
        """Take the run that is next. Raises IndexError if none waits."""
        tenant = self.peek().tenant
        start = heappop(self._heads)[0]
        queue = self._tenants[tenant]
        ticket = heappop(queue.waiting)[1]
        ticket.gone = True
        self._waiting -= 1
        self._virtual = start
        queue.start = start + 1 / ticket.weight
        self._advance(tenant, queue)
        return ticket

    def _advance(self, tenant: str, queue: _Tenant) -> None:
        """Bring a tenant's best waiting run to the front, or forget the tenant."""
        if queue.gone * 2 > len(queue.waiting):
            queue.waiting = [item for item in queue.waiting if not item[1].gone]
            queue.gone = 0
            heapify(queue.waiting)
        while queue.waiting and queue.waiting[0][1].gone:
            heappop(queue.waiting)
            queue.gone -= 1
        if queue.waiting:
            self._stand(tenant, queue)
            return
        del self._tenants[tenant]
        if not self._tenants:
            # The end of a busy period: nobody is ahead of anybody.
            self._virtual = 0.0
            self._finish.clear()
            self._heads.clear()
        elif queue.start > self._virtual:
            self._finish[tenant] = queue.start
            if len(self._finish) > 64 + 2 * len(self._tenants):
                self._finish = {name: at for name, at in self._finish.items() if at > self._virtual}

    def _stand(self, tenant: str, queue: _Tenant) -> None:
        queue.entry = next(self._entries)
        heappush(self._heads, (queue.start, queue.waiting[0][0], queue.entry, tenant))
        if len(self._heads) > 64 + 2 * len(self._tenants):
            self._heads = [
                (one.start, one.waiting[0][0], one.entry, name) for name, one in self._tenants.items()
            ]
            heapify(self._heads)


class Turnstile:
    """``limit`` places, for one event loop."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError("a turnstile needs at least one place")
        self._limit = limit
        self._in_use = 0
        self._queue = FairQueue()
        self._granted: dict[Ticket, asyncio.Future[None]] = {}

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def in_use(self) -> int:
        """Places taken; never more than the limit."""
        return self._in_use

    @property
    def waiting(self) -> int:
        """Runs that wait for a place."""
        return len(self._queue)

    @asynccontextmanager
    async def place(
        self, tenant: str, *, weight: float = 1.0, priority: int = 3, due: datetime
    ) -> AsyncIterator[None]:
        """Wait for a place and hold it. A cancellation, whenever it comes, leaves no place behind."""
        await self._enter(tenant, weight, priority, due)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, tenant: str, weight: float, priority: int, due: datetime) -> None:
        ticket = self._queue.push(tenant, weight=weight, priority=priority, due=due)
        granted = asyncio.get_running_loop().create_future()
        self._granted[ticket] = granted
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._withdraw(ticket)
            else:
                self._leave()  # The place came first, the cancellation before this task ran again.
            raise

    def _withdraw(self, ticket: Ticket) -> None:
        self._queue.discard(ticket)
        self._granted.pop(ticket, None)

    def _leave(self) -> None:
        self._in_use -= 1
        self._grant()

    def _grant(self) -> None:
        while self._in_use < self._limit and len(self._queue):
            ticket = self._queue.peek()
            if self._granted[ticket].cancelled():
                # Its task has yet to run and withdraw it; a place is not charged to its tenant.
                self._withdraw(ticket)
                continue
            self._queue.pop()
            self._in_use += 1
            self._granted.pop(ticket).set_result(None)
