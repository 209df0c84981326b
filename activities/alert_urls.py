"""Where a tenant's incidents are sent, as this process last knew it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from infra.database.errors import DatabaseError
from workflows.contracts.incident import INSTALLATION

KNOWN_FOR = 10.0
"""Seconds after which what is known is read again."""
TENANTS_KEPT = 10_000


class AlertUrls:
    """A cache of ten seconds over the tenants' settings; with the database away the last known one counts."""

    def __init__(
        self,
        read: Callable[[str], Awaitable[str | None]],
        default: str | None,
        elapsed: Callable[[], float],
    ) -> None:
        """``read``: what a tenant has set, if anything. ``default``: the installation's, which also is
        where its own incidents go. ``elapsed``: seconds on a steady clock."""
        self._read = read
        self._default = default
        self._elapsed = elapsed
        self._known: OrderedDict[str, tuple[float, str | None]] = OrderedDict()

    async def of(self, tenant: str) -> str | None:
        """None: nowhere. Raises DatabaseError when the tenant's own was never read and cannot be now."""
        if tenant == INSTALLATION:
            return self._default
        known = self._known.get(tenant)
        if known is None or self._elapsed() - known[0] > KNOWN_FOR:
            try:
                known = (self._elapsed(), await self._read(tenant))
            except DatabaseError:
                if known is None:
                    raise
            else:
                self._known[tenant] = known
                self._known.move_to_end(tenant)
                while len(self._known) > TENANTS_KEPT:
                    self._known.popitem(last=False)
        return known[1] or self._default
