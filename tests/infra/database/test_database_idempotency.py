"""Idempotency-Keys: one request a key and day, its first answer stays, nobody can wedge a key."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from infra.database import Database, IdempotencyConflict, JobIndex
from infra.database.idempotency import IdempotencyKeys, TakenKey
from tests.infra.database.samples import NOW, reserve

DAY = timedelta(hours=24)


@pytest.fixture
def keys(database: Database) -> IdempotencyKeys:
    return IdempotencyKeys(database)


async def test_a_key_stands_for_its_first_request_for_a_day(keys: IdempotencyKeys, tenant: str) -> None:
    assert await keys.take(tenant, "k", "first", NOW) == TakenKey("first", None)
    assert await keys.take(tenant, "k", "second", NOW + DAY / 2) == TakenKey("first", None)
    assert await keys.take(f"{tenant}-other", "k", "second", NOW) == TakenKey("second", None)
    await keys.answer(tenant, "k", "second", "not its own")
    await keys.answer(tenant, "k", "first", "done")
    await keys.answer(tenant, "k", "first", "done again")
    assert await keys.take(tenant, "k", "first", NOW + DAY - timedelta(microseconds=1)) == TakenKey(
        "first", "done"
    )
    assert await keys.take(tenant, "k", "second", NOW + DAY) == TakenKey("second", None)


async def test_of_many_at_once_one_request_takes_the_key(keys: IdempotencyKeys, tenant: str) -> None:
    taken = await asyncio.gather(*(keys.take(tenant, "k", f"f{n}", NOW) for n in range(20)))
    assert len({found.fingerprint for found in taken}) == 1


async def test_creations_and_other_calls_share_the_keys(
    keys: IdempotencyKeys, index: JobIndex, tenant: str
) -> None:
    """One key, two calls: the second is told, whichever comes first."""
    await keys.take(tenant, "k", "a pause", NOW)
    with pytest.raises(IdempotencyConflict):
        await reserve(index, tenant, "job", idempotency_key="k", fingerprint="a creation")
    await reserve(index, tenant, "job", idempotency_key="other", fingerprint="a creation")
    assert (await keys.take(tenant, "other", "a pause", NOW)).fingerprint == "a creation"
