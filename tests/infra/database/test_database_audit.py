"""The audit log: one entry a change, newest first, page by page, in both databases."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from infra.database import AuditEntry, AuditLog, BadCursor, Database, JobIndex
from tests.infra.database.samples import NOW, create, reserve

SECOND = timedelta(seconds=1)


@pytest.fixture
def audit(database: Database) -> AuditLog:
    return AuditLog(database)


def entry(tenant: str, number: int, at: datetime = NOW, **fields: Any) -> AuditEntry:
    row = {
        "id": f"{number:03}", "by": "ann", "operation": "patch", "job": "report",
        "from_revision": number, "to_revision": number + 1, "request_id": f"r{number}",
    }  # fmt: skip
    return AuditEntry(tenant=tenant, at=at, **{**row, **fields})


async def all_ids(audit: AuditLog, tenant: str, limit: int, **options: Any) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = await audit.list(tenant, limit=limit, cursor=cursor, **options)
        found += [told.id for told in page.items]
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor


async def test_what_is_written_is_read_back_once(audit: AuditLog, tenant: str) -> None:
    """Microseconds, missing revisions and strange texts included; a second writing adds nothing."""
    written = entry(tenant, 1, by="a\x00b\ud800", job=None, from_revision=None, to_revision=None)
    await audit.write([written])
    await audit.write([entry(tenant, 1, operation="other"), entry(tenant, 2, NOW + SECOND)])
    [newest, told] = (await audit.list(tenant)).items
    assert newest == entry(tenant, 2, NOW + SECOND)
    assert (told.at, told.by, told.operation, told.job) == (NOW, "ab?", "patch", None)
    assert (told.from_revision, told.to_revision) == (None, None)
    assert (await audit.list(f"{tenant}-other")).items == []


@pytest.mark.parametrize("limit", [1, 3, 7, 50])
async def test_pages_over_equal_instants_neither_double_nor_hide(
    audit: AuditLog, tenant: str, limit: int
) -> None:
    """f09, for the audit log: by instant, then by id; a page begins behind the last entry given."""
    await audit.write([entry(tenant, number, NOW + SECOND * (number % 3)) for number in range(30)])
    wanted = [f"{n:03}" for third in (2, 1, 0) for n in range(30) if n % 3 == third]
    assert await all_ids(audit, tenant, limit) == wanted


async def test_filters_narrow_the_list(audit: AuditLog, tenant: str) -> None:
    await audit.write(
        [
            entry(tenant, 1, NOW),
            entry(tenant, 2, NOW + SECOND, by="bob"),
            entry(tenant, 3, NOW + 2 * SECOND, job="other"),
        ]
    )
    assert await all_ids(audit, tenant, 1, job="report") == ["002", "001"]
    assert await all_ids(audit, tenant, 1, by="ann") == ["003", "001"]
    assert await all_ids(audit, tenant, 1, since=NOW + SECOND) == ["003", "002"]
    assert await all_ids(audit, tenant, 1, until=NOW + 2 * SECOND, job="report", by="bob") == ["002"]


@pytest.mark.parametrize("cursor", ["", "x", "!!!", "e30", "WyJpZCIsImEiLG51bGxd"])
async def test_a_cursor_of_another_list_is_refused(audit: AuditLog, tenant: str, cursor: str) -> None:
    with pytest.raises(BadCursor):
        await audit.list(tenant, cursor=cursor)


async def test_a_creation_is_noted_with_its_reservation_and_goes_with_it(
    index: JobIndex, audit: AuditLog, tenant: str
) -> None:
    """One transaction: a crash between the two leaves neither alone."""
    await create(index, tenant, created_by="ann")
    reservation = await reserve(index, tenant, "given-up", created_by="bob")
    by_job = {told.job: told for told in (await audit.list(tenant)).items}
    assert set(by_job) == {"report", "given-up"}
    noted = by_job["report"]
    assert (noted.operation, noted.by, noted.at) == ("create", "ann", NOW)
    assert (noted.from_revision, noted.to_revision) == (None, 1)
    assert await index.release(tenant, reservation.job.ref, now=NOW)
    assert [told.job for told in (await audit.list(tenant)).items] == ["report"]
