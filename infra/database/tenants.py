"""What tenants have settled for themselves."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from infra.database.engine import Database
from infra.database.schema import tenants
from infra.database.types import clean
from infra.database.upsert import insert

FIRST_REVISION = 1
"""Of a tenant that has settled nothing yet."""


@dataclass(frozen=True, slots=True)
class TenantSettings:
    """``alert_url`` None: the installation's. ``updated_at`` None: nothing was ever settled."""

    tenant: str
    alert_url: str | None = None
    revision: int = FIRST_REVISION
    updated_at: datetime | None = None


class Tenants:
    """The table ``tenants``. Raises DatabaseUnavailable without an answer in time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, tenant: str) -> TenantSettings:
        query = sa.select(*tenants.c).where(tenants.c.tenant == clean(tenant))
        row = await self._database.read(lambda connection: connection.execute(query).one_or_none())
        return TenantSettings(tenant) if row is None else TenantSettings(**row._mapping)

    async def set_alert_url(
        self, tenant: str, alert_url: str | None, *, now: datetime, revisions: Container[int] | None = None
    ) -> tuple[TenantSettings, TenantSettings]:
        """The settings before and after. Both are the present ones where ``revisions`` (None: any) does
        not have the present one; what is settled so already stays, whatever the revision."""

        def stays(before: TenantSettings) -> bool:
            refused = revisions is not None and before.revision not in revisions
            return refused or before.alert_url == alert_url

        def work(connection: sa.Connection) -> tuple[TenantSettings, TenantSettings]:
            mine = tenants.c.tenant == tenant
            fresh = TenantSettings(tenant)
            if stays(fresh) and connection.execute(sa.select(tenants.c.tenant).where(mine)).first() is None:
                return fresh, fresh
            first = insert(connection.dialect.name, tenants).on_conflict_do_nothing()
            connection.execute(
                first, {"tenant": tenant, "alert_url": None, "revision": FIRST_REVISION, "updated_at": now}
            )
            row = connection.execute(sa.select(*tenants.c).where(mine).with_for_update()).one()
            before = TenantSettings(**row._mapping)
            if stays(before):
                return before, before
            after = TenantSettings(tenant, alert_url, before.revision + 1, now)
            connection.execute(
                sa.update(tenants)
                .where(mine)
                .values(alert_url=after.alert_url, revision=after.revision, updated_at=now)
            )
            return before, after

        return await self._database.write(work)
