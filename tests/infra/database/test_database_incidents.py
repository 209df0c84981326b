"""Incidents and tenants' settings, in both databases."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from infra.database import Database
from infra.database.incidents import KEPT_FOR, IncidentLog
from infra.database.tenants import Tenants, TenantSettings
from tests.infra.database.samples import NOW
from workflows.contracts.incident import Incident

SECOND = timedelta(seconds=1)


@pytest.fixture
def log(database: Database) -> IncidentLog:
    return IncidentLog(database)


@pytest.fixture
def tenants(database: Database) -> Tenants:
    return Tenants(database)


def incident(tenant: str, number: int, **fields: Any) -> Incident:
    opened = NOW + number * SECOND
    return Incident.model_validate(
        {
            "id": f"inc_{number}", "tenant": tenant, "kind": "missed", "subject": "report", "job": "report",
            "detail": "3 occurrences\x00 were missed", "opened_at": opened, "last_at": opened, **fields,
        }
    )  # fmt: skip


async def test_the_newest_word_on_an_incident_stands(log: IncidentLog, tenant: str) -> None:
    """In whatever order, and however often, its rows are written."""
    first = incident(tenant, 1)
    second = incident(tenant, 1, count=2, change=2, notice="delivered")
    await log.store([second, first])
    await log.store([first])
    found, others = await log.found(first)
    assert found == second.model_copy(update={"detail": "3 occurrences were missed"})
    assert others == 0
    over = incident(tenant, 1, change=3, recovered_at=NOW, closed_at=NOW)
    await log.store([over])
    assert await log.open(tenant, 10) == []
    assert await log.count_open(tenant) == 0


async def test_open_ones_are_listed_newest_first_and_counted(log: IncidentLog, tenant: str) -> None:
    await log.store([incident(tenant, number) for number in range(5)])
    await log.store([incident(tenant, 7, closed_at=NOW), incident("other", 8)])
    assert [one.id for one in await log.open(tenant, 3)] == ["inc_4", "inc_3", "inc_2"]
    assert await log.count_open(tenant) == 5
    assert (await log.found(incident(tenant, 2)))[1] == 4


async def test_what_was_over_long_ago_goes(log: IncidentLog, tenant: str) -> None:
    await log.store([incident(tenant, 1, closed_at=NOW), incident(tenant, 2, closed_at=NOW + 9 * SECOND)])
    later = NOW + KEPT_FOR + SECOND
    await log.store([incident(tenant, 3, last_at=later)])
    assert (await log.found(incident(tenant, 1)))[0].closed_at is None  # written anew
    assert (await log.found(incident(tenant, 2)))[0].closed_at is not None


async def test_a_tenant_without_a_row_has_the_defaults(tenants: Tenants, tenant: str) -> None:
    assert await tenants.read(tenant) == TenantSettings(tenant)


async def test_settings_change_with_their_revision(tenants: Tenants, tenant: str) -> None:
    before, after = await tenants.set_alert_url(tenant, "https://a.example/", now=NOW)
    assert (before.alert_url, before.revision) == (None, 1)
    assert after == TenantSettings(tenant, "https://a.example/", 2, NOW) == await tenants.read(tenant)
    refused = await tenants.set_alert_url(tenant, None, now=NOW, revisions={1})
    assert refused == (after, after)
    assert await tenants.set_alert_url(tenant, after.alert_url, now=NOW, revisions={1}) == (after, after)
    _, reset = await tenants.set_alert_url(tenant, None, now=NOW + SECOND, revisions={2})
    assert reset == TenantSettings(tenant, None, 3, NOW + SECOND) == await tenants.read(tenant)
