"""Creating jobs: quotas, rates, races, retries, generations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from infra.database import (
    CreateRateExceeded,
    Database,
    Draft,
    IdempotencyConflict,
    JobExists,
    JobIndex,
    QuotaExceeded,
    Reservation,
    id_of_key,
)
from tests.infra.database.samples import NOW, create, definition, job_row, reserve, row_of

ROUND = 20


async def delete(index: JobIndex, tenant: str, job: str = "report") -> None:
    stored = await index.get(tenant, job)
    assert stored is not None
    gone = row_of(stored, status="deleted", change=stored.change + 1, revision=stored.revision)
    assert await index.apply(tenant, gone)


async def status_of(index: JobIndex, tenant: str, ref: str) -> str:
    stored = await index.by_ref(tenant, ref)
    assert stored is not None
    return "freed" if stored.freed else stored.status


async def test_a_job_appears_when_it_is_activated(index: JobIndex, tenant: str) -> None:
    """Reserved it is hidden, but its ref is known; activated it has what its first row says."""
    wanted = definition(description="Ünïcode \x00 and quotes '\"", labels={"team": "a&b=c"})
    reservation = await reserve(index, tenant, definition=wanted, created_by="ann")
    assert reservation.kind == "new"
    assert (reservation.job.ref, reservation.job.generation, reservation.job.revision) == ("report", 1, 1)
    assert await index.get(tenant, "report") is None
    assert await status_of(index, tenant, "report") == "reserved"
    due = NOW + timedelta(minutes=5)
    assert await index.activate(tenant, row_of(reservation.job, next_fires_at=due)) == "active"
    stored = await index.get(tenant, "report")
    assert stored is not None
    assert (stored.status, stored.change, stored.next_fires_at) == ("active", 1, due)
    assert (stored.definition, stored.created_at, stored.created_by) == (wanted, NOW, "ann")


async def test_one_of_many_concurrent_creations_of_an_id_wins(index: JobIndex, tenant: str) -> None:
    answers = await asyncio.gather(
        *(reserve(index, tenant, fingerprint=f"f{n}") for n in range(ROUND)), return_exceptions=True
    )
    won = [answer for answer in answers if isinstance(answer, Reservation)]
    assert len(won) == 1
    assert sum(isinstance(answer, JobExists) for answer in answers) == ROUND - 1
    assert (await reserve(index, tenant, "another", max_jobs=2)).kind == "new"


async def test_concurrent_repeats_of_one_request_share_one_place(index: JobIndex, tenant: str) -> None:
    answers = await asyncio.gather(*(reserve(index, tenant, None, idempotency_key="k") for _ in range(ROUND)))
    assert sorted(answer.kind for answer in answers) == ["adopted"] * (ROUND - 1) + ["new"]
    assert {answer.job.ref for answer in answers} == {id_of_key(tenant, "k")}


async def test_the_quota_is_never_exceeded(index: JobIndex, tenant: str) -> None:
    """Concurrent creations take exactly what is left, and a deletion gives one back."""
    answers = await asyncio.gather(
        *(reserve(index, tenant, f"job{n}", max_jobs=7) for n in range(ROUND)), return_exceptions=True
    )
    assert sum(isinstance(answer, Reservation) for answer in answers) == 7
    assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == ROUND - 7
    taken = next(answer.job for answer in answers if isinstance(answer, Reservation))
    await index.activate(tenant, row_of(taken))
    await delete(index, tenant, taken.job)
    await index.apply(tenant, row_of(taken, status="deleted", change=2))
    assert (await reserve(index, tenant, "last", max_jobs=7)).kind == "new"
    with pytest.raises(QuotaExceeded):
        await reserve(index, tenant, "more", max_jobs=7)


async def test_processes_share_the_quota(new_url: Callable[[], str]) -> None:
    """Two pools of connections on one database race for the same places."""
    url = new_url()
    first, second = Database.open(url), Database.open(url)
    await first.migrate()
    indexes = [JobIndex(first), JobIndex(second)]
    answers = await asyncio.gather(
        *(reserve(indexes[n % 2], "t", f"job{n}", max_jobs=5) for n in range(ROUND)), return_exceptions=True
    )
    assert sum(isinstance(answer, Reservation) for answer in answers) == 5
    assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == ROUND - 5
    await first.close()
    await second.close()


async def test_the_bucket_holds_ten_seconds_and_refills(index: JobIndex, tenant: str) -> None:
    for n in range(20):
        await reserve(index, tenant, f"job{n}", create_rate=2.0)
    with pytest.raises(CreateRateExceeded) as refusal:
        await reserve(index, tenant, "more", create_rate=2.0)
    assert refusal.value.retry_after == timedelta(seconds=0.5)
    later = NOW + refusal.value.retry_after
    assert (await reserve(index, tenant, "more", create_rate=2.0, now=later)).kind == "new"
    with pytest.raises(CreateRateExceeded):
        await reserve(index, tenant, "still-more", create_rate=2.0, now=NOW - timedelta(hours=1))


async def test_a_key_replays_its_request_and_no_other(index: JobIndex, tenant: str) -> None:
    first = await reserve(index, tenant, None, idempotency_key="k", max_jobs=1, create_rate=0.1)
    again = await reserve(
        index, tenant, None, idempotency_key="k", max_jobs=1, create_rate=0.1, now=NOW + timedelta(seconds=9)
    )
    assert (again.kind, again.job) == ("adopted", first.job)
    await index.activate(tenant, row_of(first.job))
    replay = await reserve(index, tenant, None, idempotency_key="k", max_jobs=1, create_rate=0.1)
    assert (replay.kind, replay.job.status, replay.job.ref) == ("replay", "active", first.job.ref)
    with pytest.raises(IdempotencyConflict):
        await reserve(index, tenant, None, idempotency_key="k", fingerprint="other")
    await delete(index, tenant, first.job.job)
    assert (await reserve(index, tenant, None, idempotency_key="k")).job.status == "deleted"


async def test_a_key_is_forgotten_after_a_day(index: JobIndex, tenant: str) -> None:
    """The id taken from it is still in use, so a late repeat makes no second job."""
    await create(index, tenant, "a", idempotency_key="k", fingerprint="1")
    tomorrow = NOW + timedelta(hours=24)
    other = await reserve(index, tenant, "b", idempotency_key="k", fingerprint="2", now=tomorrow)
    assert (other.kind, other.job.job) == ("new", "b")
    with pytest.raises(IdempotencyConflict):
        await reserve(index, tenant, "b", idempotency_key="k", fingerprint="1", now=tomorrow)
    assert await index.forget_keys(tomorrow + timedelta(hours=23)) >= 0
    with pytest.raises(IdempotencyConflict):
        await reserve(index, tenant, "b", idempotency_key="k", fingerprint="1", now=tomorrow)
    assert await index.forget_keys(tomorrow + timedelta(hours=24)) >= 1


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        pytest.param({}, {}, "adopted", id="same request"),
        pytest.param({"idempotency_key": "k"}, {}, "adopted", id="same request, key left out"),
        pytest.param({}, {"idempotency_key": "k"}, "adopted", id="same request, key added"),
        pytest.param({"idempotency_key": "k"}, {"idempotency_key": "l"}, "exists", id="other key"),
        pytest.param({}, {"fingerprint": "g"}, "exists", id="other request"),
    ],
)
async def test_an_unfinished_creation_is_adopted_by_its_own_repeat(
    index: JobIndex, tenant: str, first: dict[str, str], second: dict[str, str], found: str
) -> None:
    """The repeat goes on with what the first one stored; once it is finished the id is in use."""
    reserved = await reserve(index, tenant, **first)
    if found == "adopted":
        again = await reserve(index, tenant, now=NOW + timedelta(minutes=1), **second)
        assert (again.kind, again.job) == ("adopted", reserved.job)
        await index.activate(tenant, row_of(reserved.job))
    with pytest.raises(JobExists):
        await reserve(index, tenant, **{**second, "idempotency_key": "z"})


async def test_generations_and_revisions_go_on(index: JobIndex, tenant: str) -> None:
    await create(index, tenant)
    await index.apply(tenant, job_row(change=2, revision=4))
    await delete(index, tenant)
    assert await index.get(tenant, "report") is None
    second = await reserve(index, tenant)
    assert (second.kind, second.job.ref, second.job.generation, second.job.revision) == (
        "new",
        "report~2",
        2,
        5,
    )
    await index.activate(tenant, row_of(second.job))
    await index.apply(tenant, job_row(change=99, revision=99, status="paused"))
    current = await index.get(tenant, "report")
    assert current is not None
    assert (current.ref, current.status, current.revision) == ("report~2", "active", 5)
    tombstone = await index.by_ref(tenant, "report")
    assert tombstone is not None
    assert (tombstone.status, tombstone.revision) == ("deleted", 4)


async def test_a_released_reservation_is_recognised_for_ever(index: JobIndex, tenant: str) -> None:
    """Its key and its place are free again, its ref is not: a workflow that starts late is undone."""
    reserved = await reserve(index, tenant, idempotency_key="k", max_jobs=1)
    assert await status_of(index, tenant, "report") == "reserved"
    assert await index.release(tenant, "report", now=NOW)
    assert not await index.release(tenant, "report", now=NOW)
    assert await status_of(index, tenant, "report") == "freed"
    assert await index.activate(tenant, row_of(reserved.job)) == "freed"
    second = await reserve(index, tenant, idempotency_key="k", max_jobs=1)
    assert (second.kind, second.job.ref) == ("new", "report~2")
    await index.activate(tenant, row_of(second.job))
    assert not await index.release(tenant, "report~2", now=NOW)
    assert await index.activate(tenant, job_row("unheard-of")) == "missing"


async def test_the_workflow_may_be_faster_than_the_activation(index: JobIndex, tenant: str) -> None:
    """A later change that is stored first stands, and finishes the reservation."""
    reserved = await reserve(index, tenant)
    assert await index.apply(tenant, row_of(reserved.job, change=2, status="paused"))
    assert await index.activate(tenant, row_of(reserved.job)) == "active"
    stored = await index.get(tenant, "report")
    assert stored is not None
    assert (stored.status, stored.change) == ("paused", 2)
    assert not await index.release(tenant, "report", now=NOW)


async def test_stale_reservations_are_found_oldest_first(index: JobIndex, tenant: str) -> None:
    long_ago = NOW - timedelta(days=1000)
    await reserve(index, tenant, "b", now=long_ago + timedelta(seconds=1))
    await reserve(index, tenant, "a", now=long_ago)
    await reserve(index, tenant, "young", now=long_ago + timedelta(seconds=2))
    await create(index, tenant, "done", now=long_ago)
    found = await index.stale_reservations(long_ago + timedelta(seconds=2), 10)
    assert [job.job for job in found] == ["a", "b"]
    assert [job.job for job in await index.stale_reservations(NOW, 1)] == ["a"]
    for job in ("a", "b", "young"):
        assert await index.release(tenant, job, now=NOW)


async def test_a_batch_is_answered_one_by_one(index: JobIndex, tenant: str) -> None:
    """One transaction; the quota is taken in order, and doubles within the batch are seen."""
    ids = ["a", "b", "a", "c", "d"]
    drafts = [index.draft(tenant, job, definition(), fingerprint=f"{n}") for n, job in enumerate(ids)]
    answers = await index.reserve_all(tenant, drafts, max_jobs=3, create_rate=100.0, now=NOW)
    kinds = [answer.kind if isinstance(answer, Reservation) else answer.code for answer in answers]
    assert kinds == ["new", "new", "job_exists", "new", "quota_exceeded"]
    jobs = [answer.job for answer in answers if isinstance(answer, Reservation)]
    assert await index.activate_all(tenant, [row_of(job) for job in jobs]) == ["active"] * 3
    assert [job.job for job in (await index.list(tenant)).items] == ["a", "b", "c"]
    assert await index.reserve_all(tenant, [], max_jobs=3, create_rate=100.0, now=NOW) == []


def test_ids_come_from_the_key_or_from_chance(database: Database) -> None:
    index = JobIndex(database)
    keys = ("k", "k", None, None)
    drafts: list[Draft] = [
        index.draft("t", None, definition(), fingerprint="f", idempotency_key=key) for key in keys
    ]
    assert drafts[0].job == drafts[1].job
    assert len({draft.job for draft in drafts}) == 3
