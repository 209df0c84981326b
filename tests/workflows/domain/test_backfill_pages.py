"""Pages of a backfill: when one is asked for, and what of it is left to run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workflows.domain.backfills import accepted, begin, own
from tests.workflows.domain.states import NOON, at, definition, report, state
from workflows.contracts.backfill import (
    PAGE,
    BackfillPage,
    Paged,
)
from workflows.contracts.job import UNWRITTEN_RUNS_MAX, RunEnded, UnwrittenRun
from workflows.contracts.records import AttemptRow, ExecutionRow, LastRun, Outcome, Record, sequence
from workflows.domain import backfill, job_changes, job_state, unwritten
from workflows.domain.unwritten import Told


@pytest.mark.parametrize(
    ("waiting", "fields", "wanted"),
    [
        pytest.param(0, {"asked": False, "cursor": at(-60)}, True, id="never-asked"),
        pytest.param(0, {"cursor": at(-1)}, True, id="more-is-settled"),
        pytest.param(PAGE // 2, {"cursor": at(-1)}, True, id="in-time"),
        pytest.param(PAGE // 2 + 1, {"cursor": at(-1)}, False, id="early-enough"),
        pytest.param(0, {"cursor": at(1)}, False, id="the-loop-has-not-settled-it"),
        pytest.param(0, {"all_paged": True, "cursor": at(-1)}, False, id="all-of-it"),
        pytest.param(0, {"status": "done", "cursor": at(-1)}, False, id="ended"),
    ],
)
def test_when_a_page_is_asked_for(waiting: int, fields: dict[str, Any], wanted: bool) -> None:
    job = state([1], cursor=0)
    one = accepted(job, *range(-waiting, 0))
    one.all_paged = False
    for name, value in fields.items():
        setattr(one, name, value)
    assert backfill.wants_page(job, one) is wanted


def test_an_edit_of_the_timing_keeps_what_was_counted() -> None:
    job = state([1])
    one = accepted(job)
    before = job.definition.schedule
    job_changes.edit(job, definition(description="the same instants"), at(0), calling=False)
    assert one.timing is None
    for every in ("PT2M", "PT3M"):
        later = definition(schedule={"every": every, "anchor": NOON.isoformat()})
        job_changes.edit(job, later, at(0), calling=False)
        assert backfill.page_asked(job, one).timing.schedule == before
    assert backfill.shown(one).timing is None


def written(minute: float, suffix: str, outcome: Outcome, attempt: int) -> Record:
    key = own(minute) + suffix
    seq = sequence(attempt, 1, 5)
    return Record(
        tenant="acme",
        ref="report",
        execution=ExecutionRow(key=key, scheduled_time=at(minute), fires_at=at(0), outcome=outcome, seq=seq),
        attempt=AttemptRow(
            attempt=attempt, delivery=1, execution_id=f"{key}:{attempt}", outcome="failed", seq=seq
        ),
    )


def test_what_the_database_does_not_know_yet_counts() -> None:
    """A success that waits to be written is no gap; attempts that were sent are not sent again."""
    records = [
        written(-9, "", "succeeded", 1), written(-8, "+r2", "succeeded", 4), written(-7, "", "retrying", 2),
        written(-7, "", "dead_lettered", 3), written(-6, "+b1", "dead_lettered", 5),
    ]  # fmt: skip
    job = state([50], records=records)
    told = unwritten.unwritten(job)
    assert told == {
        own(-9): Told(True, 1), own(-8): Told(True, 0), own(-7): Told(False, 3), own(-6): Told(False, 0)
    }  # fmt: skip
    one = accepted(job)
    one.all_paged = False
    asked = backfill.page_asked(job, one)
    page = BackfillPage(
        occurrences=[Paged(at=at(minute), attempt=2) for minute in (-9, -8, -7, -6)],
        cursor=at(-5),
        last=False,
    )
    backfill.adopt(job, one.number, asked, page, told, at(0))
    assert [(entry.at, entry.attempt) for entry in one.page] == [(at(-7), 4), (at(-6), 2)]
    assert (one.cursor, one.all_paged) == (at(-5), False)
    backfill.adopt(job, one.number, asked, page, told, at(0))
    assert len(one.page) == 2, "a page that comes twice is taken once"


def end_beside(minute: float, outcome: Outcome, unwritten_: UnwrittenRun | None) -> RunEnded:
    last = LastRun(key=own(minute), scheduled_time=at(minute), trigger="schedule", outcome=outcome)
    return RunEnded(last_run=last, ended_at=at(0), unwritten=unwritten_)


def test_what_the_database_does_not_know_of_runs_beside_the_job_counts_until_they_are_written() -> None:
    job = state([50])
    for minute, succeeded, attempts in ((-9, True, 1), (-8, False, 3)):
        told = UnwrittenRun(key=own(minute), succeeded=succeeded, attempts=attempts)
        job_changes.ended_beside(job, end_beside(minute, "succeeded" if succeeded else "dead_lettered", told))
    assert unwritten.unwritten(job) == {own(-9): Told(True, 1), own(-8): Told(False, 3)}
    job_changes.ended_beside(job, end_beside(-9, "succeeded", None))
    assert unwritten.unwritten(job) == {own(-8): Told(False, 3)}
    for number in range(2 * UNWRITTEN_RUNS_MAX):
        told = UnwrittenRun(key=own(number), succeeded=True, attempts=1)
        job_changes.ended_beside(job, end_beside(number, "succeeded", told))
    assert len(job.unwritten_runs) == UNWRITTEN_RUNS_MAX
    assert job.unwritten_runs[-1].key == own(2 * UNWRITTEN_RUNS_MAX - 1)


def test_a_run_beside_its_job_tells_what_the_database_does_not_know() -> None:
    alone = state([], last_run=end_beside(-9, "succeeded", None).last_run)
    assert unwritten.told_at_end(alone) is None
    alone.records = [written(-9, "", "retrying", 1), written(-9, "", "succeeded", 2)]
    assert unwritten.told_at_end(alone) == UnwrittenRun(key=own(-9), succeeded=True, attempts=2)


def test_a_backfill_of_nothing_is_done_with_its_first_page() -> None:
    job = state([50])
    one = accepted(job)
    one.all_paged = False
    page = BackfillPage(occurrences=[], cursor=at(0), last=True)
    backfill.adopt(job, one.number, backfill.page_asked(job, one), page, {}, at(1))
    assert (one.status, one.ended_at) == ("done", at(1))


def test_an_occurrence_that_falls_due_during_a_slice_waits_for_it() -> None:
    job = state([1, 2])
    begin(job, accepted(job, -5), now=0.9)
    assert job.run is not None
    inp = job_state.attempt_input(job, job.run)
    told = report(fired=0.9, ended=1.4)
    job_state.learn(job, job.run, inp, told)
    job_state.ended(job, job.run, inp, told, told.ended_at)
    assert [one.scheduled_time for one in job.plan] == [at(1), at(2)]
    assert (job.stats.skipped, job.blocked_since) == (0, at(0.9))
