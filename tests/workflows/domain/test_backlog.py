"""Records that wait for the database stay within 200 and 128 KiB, and lose no count on the way."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workflows.domain.states import NOON, at, definition
from workflows.contracts.job import CARRIED_BYTES, RECORDS_MAX, RECORDS_MAX_BYTES
from workflows.contracts.names import execution_id, scheduled_key
from workflows.contracts.records import AttemptRow, ExecutionRow, JobProgress, JobRow, Outcome, Record, Stats
from workflows.domain import backlog

FINAL: tuple[Outcome, ...] = ("succeeded", "dead_lettered", "skipped", "missed", "cancelled")


def record(
    number: int, outcome: Outcome = "succeeded", *, count: int = 1, answer: str | None = None
) -> Record:
    key = scheduled_key("acme", "report", at(number))
    row = ExecutionRow(
        key=key, scheduled_time=at(number), fires_at=at(number), outcome=outcome, seq=10_015, count=count
    )
    attempt = AttemptRow(
        attempt=1,
        delivery=1,
        execution_id=execution_id(key, 1),
        outcome="succeeded",
        seq=10_015,
        answer=answer,
    )
    ran = outcome in ("succeeded", "dead_lettered")
    return Record(
        tenant="acme",
        ref="report",
        execution=row,
        attempt=attempt if ran else None,
        progress=JobProgress(run_number=number, stats=Stats(runs=number)) if ran else None,
    )


def change(number: int) -> Record:
    row = JobRow(
        job="report", generation=1, revision=1, change=number, status="active",
        definition=definition(description="x" * 2000), created_at=NOON, updated_at=NOON,
    )  # fmt: skip
    return Record(tenant="acme", ref="report", job=row)


def counts(records: list[Record]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in records:
        if one.execution is not None and one.execution.outcome != "retrying":
            found[one.execution.outcome] += one.execution.count
    return found


def runs_known(records: list[Record]) -> int:
    return max((one.progress.run_number for one in records if one.progress is not None), default=0)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*FINAL, "retrying"]),
            st.integers(1, 1000),
            st.sampled_from([None, "ok", "é" * 2000, "\N{GRINNING FACE}" * 1000]),
        ),
        max_size=450,
    )
)
def test_the_bounds_hold_and_the_counts_of_every_outcome_stay(
    told: list[tuple[Outcome, int, str | None]],
) -> None:
    kept = [change(1)]
    expected: Counter[str] = Counter()
    for number, (outcome, count, answer) in enumerate(told, 1):
        kept = backlog.add(kept, [record(number, outcome, count=count, answer=answer)])
        expected[outcome] += count if outcome != "retrying" else 0
        assert len(kept) <= RECORDS_MAX
    assert sum(len(one.model_dump_json(exclude_none=True).encode()) for one in kept) <= RECORDS_MAX_BYTES
    assert counts(kept) == +expected
    assert [one.job.change for one in kept if one.job is not None] == [1]
    ran = [
        number for number, (outcome, _, _) in enumerate(told, 1) if outcome in ("succeeded", "dead_lettered")
    ]
    assert runs_known(kept) == max(ran, default=0)


def test_what_fits_is_left_as_it_is() -> None:
    kept = [record(number, answer="ok") for number in range(100)]
    assert backlog.add(kept[:50], kept[50:]) == kept


def test_answers_go_before_any_row_is_merged() -> None:
    kept = backlog.add([], [record(number, answer="x" * 4096) for number in range(60)])
    assert len(kept) == 60
    assert {one.attempt.answer for one in kept if one.attempt is not None} == {None}


def test_the_oldest_are_merged_and_the_newest_keep_their_rows() -> None:
    kept = backlog.add([], [record(number) for number in range(RECORDS_MAX + 1)])
    merged = kept[0].execution
    assert merged is not None
    assert (merged.count, merged.scheduled_time, merged.last_scheduled_time) == (50, at(0), at(49))
    assert merged.reason == "merged: the history could not be written"
    assert kept[1:] == [record(number) for number in range(50, RECORDS_MAX + 1)]


def test_the_word_that_a_run_is_being_retried_is_dropped_first() -> None:
    """A later record of the same execution says how it ended."""
    kept = backlog.add([], [record(number, "retrying") for number in range(RECORDS_MAX + 1)])
    assert len(kept) < RECORDS_MAX
    assert counts(kept) == Counter()


def test_what_rides_along_is_the_oldest_and_at_most_32_kib() -> None:
    kept = [record(number, answer="\N{GRINNING FACE}" * 500) for number in range(40)]
    riding = backlog.carried(kept)
    assert riding == kept[: len(riding)]
    assert sum(map(backlog.size, riding)) <= CARRIED_BYTES < sum(map(backlog.size, kept[: len(riding) + 1]))


def test_one_large_record_still_rides_along() -> None:
    large = change(1)
    assert large.job is not None
    body = {"target": {"url": "http://127.0.0.1:9/", "body": "x" * 60_000}}
    large = large.model_copy(update={"job": large.job.model_copy(update={"definition": definition(**body)})})
    assert backlog.carried([large, record(1)]) == [large]
