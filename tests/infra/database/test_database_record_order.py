"""Records in any order, once or twice, alone or in batches, leave one final state."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from infra.database import Database, History, JobIndex
from infra.database import records as rows
from tests.infra.database.samples import (
    NOON,
    attempt,
    create,
    execution,
    job_row,
    progress,
    record,
    reserve,
    run_records,
)
from workflows.contracts.names import job_of, scheduled_key
from workflows.contracts.records import Record, sequence

MINUTE = timedelta(minutes=1)


def story(tenant: str) -> list[Record]:
    """Three runs, one of them retried, reaped and settled; edits and a pause between; a growing stretch."""
    fired = NOON + timedelta(milliseconds=7)
    key = scheduled_key(tenant, "report", NOON + 2 * MINUTE)
    third: dict[str, Any] = {"tenant": tenant, "at": NOON + 2 * MINUTE}
    first_firing: dict[str, Any] = {"started_at": fired + 2 * MINUTE, "lateness_ms": 7}
    told = [
        *run_records(tenant, at=NOON, run=1),
        *run_records(tenant, at=NOON + MINUTE, run=2),
        record(
            tenant,
            execution=execution(outcome="running", seq=sequence(1, 1, 1), **third, **first_firing),
            attempt=attempt(key, outcome="running", seq=sequence(1, 1, 1), worker="w1"),
        ),
        record(
            tenant,
            execution=execution(outcome="running", seq=sequence(1, 2, 1), **third, **first_firing),
            attempt=attempt(key, outcome="running", delivery=2, seq=sequence(1, 2, 1), worker="w2"),
        ),
        record(
            tenant,
            execution=execution(outcome="retrying", seq=sequence(1, 2, 5), **third, **first_firing),
            attempt=attempt(key, outcome="failed", delivery=2, seq=sequence(1, 2, 5), error="boom"),
        ),
        record(
            tenant,
            execution=execution(outcome="succeeded", seq=sequence(2, 1, 5), **third, **first_firing),
            attempt=attempt(key, 2, seq=sequence(2, 1, 5), status_code=204, answer="a"),
            progress=progress(3, next_fires_at=NOON + 3 * MINUTE),
        ),
        # The workflow's own word, which does not know of the first firing, stands over the worker's.
        record(
            tenant,
            execution=execution(
                outcome="dead_lettered", reason="max_duration", seq=sequence(2, 1, 9), ended_at=fired, **third
            ),
            progress=progress(3, outcome="dead_lettered", next_fires_at=NOON + 3 * MINUTE),
        ),
        record(tenant, job=job_row(change=2, revision=2, next_fires_at=NOON + MINUTE / 2, run_number=1)),
        record(tenant, job=job_row(change=3, status="paused", revision=2, run_number=2)),
        record(tenant, job=job_row(change=4, revision=3, next_fires_at=NOON + 2 * MINUTE, run_number=2)),
    ]
    missed: dict[str, Any] = {"tenant": tenant, "at": NOON + 9 * MINUTE, "outcome": "missed", "seq": 9}
    told += [
        record(
            tenant,
            execution=execution(
                count=n, last_scheduled_time=NOON + (8 + n) * MINUTE, ended_at=NOON + n * MINUTE, **missed
            ),
        )
        for n in (1, 2, 5)
    ]
    # The first occurrence of that stretch is made up for later.
    told.append(record(tenant, execution=execution(tenant, at=NOON + 9 * MINUTE, trigger="backfill")))
    return told


async def state(database: Database, tenant: str) -> tuple[Any, Any]:
    """All that is stored of a tenant, with its name taken out."""
    executions = await History(database).list_executions(tenant)
    jobs = [await JobIndex(database).by_ref(tenant, "report")]
    return repr(executions).replace(tenant, "T"), repr(jobs).replace(tenant, "T")


def shuffled(told: Sequence[Record], seed: int) -> list[list[Record]]:
    """Every record at least once, some twice, in random batches."""
    chance = random.Random(seed)
    order = [*told, *chance.sample(list(told), k=len(told) // 2)]
    chance.shuffle(order)
    batches: list[list[Record]] = []
    while order:
        size = chance.choice((1, 1, 2, 5, len(order)))
        batches.append(order[:size])
        del order[:size]
    return batches


async def test_any_order_gives_one_state(
    database: Database, index: JobIndex, history: History, tenant: str
) -> None:
    index, history = JobIndex(database), History(database)
    await create(index, tenant)
    for told in story(tenant):
        await history.write([told])
    expected = await state(database, tenant)
    stored = await index.get(tenant, "report")
    assert stored is not None
    assert (stored.status, stored.change, stored.revision) == ("active", 4, 3)
    assert (stored.run_number, stored.next_fires_at) == (3, NOON + 3 * MINUTE)
    assert stored.last_run is not None
    assert stored.last_run.outcome == "dead_lettered"
    third = await history.get_execution(tenant, scheduled_key(tenant, "report", NOON + 2 * MINUTE))
    assert third is not None
    assert (third.row.outcome, third.row.lateness_ms, third.row.reason) == (
        "dead_lettered",
        7,
        "max_duration",
    )
    assert [(told.attempt, told.delivery, told.outcome) for told in third.attempts] == [
        (1, 2, "failed"),
        (2, 1, "succeeded"),
    ]
    for seed in range(40):
        other = f"{tenant}-{seed}"
        await create(index, other)
        for batch in shuffled(story(other), seed):
            await history.write(batch)
        assert await state(database, other) == expected, f"seed {seed}"


@pytest.mark.parametrize("seed", range(5))
async def test_a_deletion_among_them_is_final_and_frees_one_place(
    index: JobIndex, history: History, tenant: str, seed: int
) -> None:
    await create(index, tenant, max_jobs=1)
    told = [*story(tenant), record(tenant, job=job_row(change=5, status="deleted", revision=3))]
    for batch in shuffled(told, seed):
        await history.write(batch)
    tombstone = await index.by_ref(tenant, "report")
    assert tombstone is not None
    assert (tombstone.status, tombstone.change, tombstone.next_fires_at) == ("deleted", 5, None)
    assert (tombstone.run_number, tombstone.stats.runs) == (3, 3)
    await reserve(index, tenant, "b", max_jobs=1)
    assert await index.by_ref(tenant, "c") is None


async def test_older_changes_and_runs_do_nothing(index: JobIndex, history: History, tenant: str) -> None:
    """The guards one by one: change, run number, the word on one run."""
    await create(index, tenant)
    assert await index.apply(tenant, job_row(change=5, status="paused"))
    assert not await index.apply(tenant, job_row(change=5, status="active"))
    assert not await index.apply(tenant, job_row(change=4, status="completed"))
    assert not await index.apply(tenant, job_row("unknown", change=4))
    assert not await index.apply(tenant, job_row(generation=2, change=9))
    await history.write([record(tenant, progress=progress(7, next_fires_at=NOON))])
    await history.write([record(tenant, progress=progress(7, outcome="failed"))])
    await history.write([record(tenant, progress=progress(6))])
    stored = await index.get(tenant, "report")
    assert stored is not None
    assert (stored.status, stored.change, stored.run_number, stored.next_fires_at) == ("paused", 5, 7, NOON)
    assert stored.last_run is not None
    assert stored.last_run.outcome == "succeeded"


@pytest.mark.parametrize(
    ("known_run", "expected"),
    [
        pytest.param(7, "change", id="made after the run began"),
        pytest.param(6, "run", id="made before"),
        pytest.param(None, "change", id="by an older release"),
    ],
)
async def test_the_next_firing_when_an_edit_comes_last(
    index: JobIndex, history: History, tenant: str, known_run: int | None, expected: str
) -> None:
    """Of a change that arrives after the progress of run 7, the one that knew of more runs decides."""
    await create(index, tenant)
    await history.write([record(tenant, progress=progress(7, next_fires_at=NOON))])
    await index.apply(tenant, job_row(change=2, next_fires_at=NOON + MINUTE, run_number=known_run))
    stored = await index.get(tenant, "report")
    assert stored is not None
    assert stored.next_fires_at == (NOON if expected == "run" else NOON + MINUTE)


@pytest.mark.parametrize(("known_run", "expected"), [(7, "change"), (6, "run")])
async def test_the_next_firing_when_a_run_comes_last(
    index: JobIndex, history: History, tenant: str, known_run: int, expected: str
) -> None:
    """The same verdict in the other order."""
    await create(index, tenant)
    await index.apply(tenant, job_row(change=2, next_fires_at=NOON + MINUTE, run_number=known_run))
    await history.write([record(tenant, progress=progress(7, next_fires_at=NOON))])
    stored = await index.get(tenant, "report")
    assert stored is not None
    assert stored.next_fires_at == (NOON if expected == "run" else NOON + MINUTE)


async def test_records_of_an_unknown_job_are_history_only(
    index: JobIndex, history: History, tenant: str
) -> None:
    """Nobody but a creation inserts into the index."""
    await history.write([*run_records(tenant), record(tenant, job=job_row(change=3))])
    assert await index.by_ref(tenant, "report") is None
    assert len((await history.list_executions(tenant)).items) == 1


async def test_two_writers_do_not_lock_each_other_out(
    database: Database, index: JobIndex, history: History, tenant: str
) -> None:
    """One writes of changes where the other writes of runs, and of ids that a generation sorts anew."""
    await create(index, tenant, "a")
    await history.write([record(tenant, "a", job=job_row("a", change=2, status="deleted"))])
    for name in ("a", "ab", "ac"):
        await create(index, tenant, name)
    run_of, change_of = ("a~2", "ac"), ("ab",)
    tried = 0

    async def write_many(runs: Sequence[str], changes: Sequence[str]) -> None:
        for number in range(1, 41):
            told = [record(tenant, ref, progress=progress(number)) for ref in runs]
            for ref in changes:
                job, generation = job_of(ref)
                row = job_row(job, generation=generation, change=number + 1)
                told.append(record(tenant, ref, job=row))

            def work(connection: sa.Connection, told: Sequence[Record] = told) -> None:
                nonlocal tried
                tried += 1
                rows.write(connection, told)

            await database.write(work)

    await asyncio.gather(write_many(run_of, change_of), write_many(change_of, run_of))
    assert tried == 2 * 40, "a deadlock was tried again"
