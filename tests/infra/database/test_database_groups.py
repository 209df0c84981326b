"""Groups as lists show them: given a limit, or named by jobs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from infra.database import BadCursor, Database, GroupIndex, JobIndex, StoredGroup
from tests.infra.database.samples import NOW, create, definition, job_row
from workflows.contracts.definition import Concurrency, JobDefinition


def of_group(name: str | None) -> JobDefinition:
    return definition(concurrency=Concurrency(group=name))


@pytest.fixture
def groups(database: Database) -> GroupIndex:
    return GroupIndex(database)


async def test_a_group_is_known_by_its_limit_and_by_the_jobs_that_name_it(
    groups: GroupIndex, index: JobIndex, tenant: str
) -> None:
    """An edit moves a job from one to the other; a deleted job is no member."""
    for job, group in (("a", "db"), ("b", "db"), ("c", None), ("d", "gpu")):
        await create(index, tenant, job, definition=of_group(group))
    await groups.put(tenant, "gpu", 4, NOW)
    await groups.put(tenant, "spare", 2, NOW)
    expected = [StoredGroup("db", 1, 2), StoredGroup("gpu", 4, 1), StoredGroup("spare", 2, 0)]
    assert (await groups.list(tenant)).items == expected
    assert list(await groups.members(tenant, "db", limit=10)) == ["a", "b"]
    assert list(await groups.members(tenant, "db", limit=1)) == ["a"]
    assert await index.apply(tenant, job_row("a", change=2, definition=of_group("gpu")))
    assert await index.apply(tenant, job_row("d", change=2, status="deleted", definition=of_group("gpu")))
    assert [await groups.get(tenant, name) for name in ("db", "gpu", "none")] == [
        StoredGroup("db", 1, 1), StoredGroup("gpu", 4, 1), None,
    ]  # fmt: skip
    assert [stored.job for stored in (await index.list(tenant, group="gpu")).items] == ["a"]
    await groups.delete(tenant, "gpu")
    await groups.delete(tenant, "spare")
    assert (await groups.list(tenant)).items == [StoredGroup("db", 1, 1), StoredGroup("gpu", 1, 1)]


async def test_groups_are_listed_page_by_page_and_by_tenant(
    groups: GroupIndex, index: JobIndex, tenant: str
) -> None:
    names = [f"g{number}" for number in range(5)]
    for name in names:
        await groups.put(tenant, name, 1, NOW)
    await create(index, tenant, "j", definition=of_group("g2"))
    await groups.put(f"{tenant}-other", "h", 1, NOW)
    seen: list[str] = []
    cursor = None
    while True:
        page = await groups.list(tenant, limit=2, cursor=cursor)
        seen += [group.name for group in page.items]
        if (cursor := page.next_cursor) is None:
            break
    assert seen == names
    with pytest.raises(BadCursor):
        await groups.list(tenant, cursor="x")


async def test_the_limit_that_was_set_last_stays(groups: GroupIndex, tenant: str) -> None:
    """Whatever the order in which two processes store them."""
    await groups.put(tenant, "g", 5, NOW + timedelta(seconds=1))
    await groups.put(tenant, "g", 3, NOW)
    assert await groups.get(tenant, "g") == StoredGroup("g", 5, 0)
