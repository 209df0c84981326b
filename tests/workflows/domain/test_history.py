"""Rows: the worker and the workflow write the same, and an older word never wins."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from infra.database.execution_rows import merge
from tests.workflows.domain.states import at, begun, report, state
from workflows.contracts.attempt import AttemptReport
from workflows.contracts.planning import Stretch
from workflows.contracts.records import ALIVE, AttemptRow, ExecutionRow, sequence
from workflows.domain import history, job_state


def ran(delivery: int, outcome: str = "succeeded", **fields: object) -> AttemptReport:
    return report(outcome, fired=1, ended=1.1, **{"deliveries": delivery, **fields})


def row(told: AttemptReport) -> ExecutionRow:
    _, inp = begun(state())
    execution = history.attempt_record(inp, told, history.verdict(inp, told)).execution
    assert execution is not None
    return execution


def test_words_on_one_execution_are_ordered_by_attempt_then_delivery_then_phase() -> None:
    ascending = [
        sequence(attempt, delivery, phase)
        for attempt in (1, 2, 30)
        for delivery in (1, 2, 500, 999)
        for phase in (1, 5, 9)
    ]
    assert all(a < b for a, b in pairwise(ascending))
    assert sequence(1, 5000, 9) < sequence(2, 0, 1)


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "timed_out"])
def test_the_worker_and_the_workflow_write_the_same_record(outcome: str) -> None:
    job = state()
    run, inp = begun(job)
    told = ran(1, outcome)
    written = history.attempt_record(inp, told, history.verdict(inp, told))
    job_state.learn(job, run, inp, told)
    job_state.ended(job, run, inp, told, told.ended_at)
    assert job.records == [written]
    if written.progress is not None:
        assert written.progress.stats == job.stats
        assert written.progress.last_run == job.last_run


@pytest.mark.parametrize("late", [False, True], ids=["in order", "the zombie last"])
def test_an_older_delivery_never_wins_over_a_newer_one(late: bool) -> None:
    newer, zombie = row(ran(2)), row(ran(1, "failed", retryable=False))
    first, second = (newer, zombie) if late else (zombie, newer)
    assert merge(first, second).outcome == "succeeded"


@pytest.mark.parametrize("late", [False, True], ids=["in order", "the lost holder last"])
def test_the_word_that_all_leases_were_lost_stands_over_the_last_holders(late: bool) -> None:
    """Which wrote that a retry follows when its lease had gone; who found that out made no delivery."""
    lost = row(ran(2, "failed", retryable=False, reason=history.LEASES_LOST))
    holder = row(ran(2, "timed_out"))
    assert holder.outcome == "retrying"
    assert merge(*((lost, holder) if late else (holder, lost))).outcome == "dead_lettered"


@pytest.mark.parametrize("delivery", [1, 4])
def test_the_workflows_word_stands_over_the_workers_own_of_any_delivery(delivery: int) -> None:
    """Of one that it never heard of too, whose row would say ``running`` for ever."""
    _, inp = begun(state())
    settled = history.settled_record(
        inp, outcome="cancelled", reason="deleted", started_at=at(1), ended_at=at(2)
    )
    assert settled.execution is not None
    assert merge(settled.execution, row(ran(delivery))).outcome == "cancelled"
    assert settled.progress is not None
    assert settled.progress.stats.runs == 1


def test_a_run_that_was_put_back_and_ran_after_all_replaces_the_stretch_of_its_instant() -> None:
    stretch = Stretch(count=1, first=at(1), last=at(1))
    skipped = history.stretch_row("acme", "report", 1, stretch, outcome="skipped", reason="paused", at=at(2))
    assert merge(row(ran(1)), skipped).outcome == "succeeded"


def test_a_running_row_is_alive_and_older_than_its_end() -> None:
    _, inp = begun(state())
    running = history.running_record(
        inp, delivery=1, started_at=at(1), at=at(1), lateness_ms=4, worker="w"
    ).execution
    assert running is not None
    assert running.outcome in ALIVE
    ended = merge(row(ran(1)), running)
    assert (ended.outcome, ended.lateness_ms) == ("succeeded", 4)


@pytest.mark.parametrize("outcome", ["late", "returned"])
def test_what_uses_no_attempt_leaves_no_row(outcome: str) -> None:
    with pytest.raises(ValueError, match="leaves no row"):
        row(ran(0, outcome))


def test_a_stretch_grows_under_its_own_key() -> None:
    stretch = [Stretch(count=2, first=at(1), last=at(2)), Stretch(count=3, first=at(3), last=at(5))]
    first, following = (
        history.stretch_row("acme", "report", 1, one, outcome="missed", reason=None, at=at(9))
        for one in stretch
    )
    longer = history.longer(first, following)
    assert (longer.key, longer.count, longer.last_scheduled_time) == (first.key, 5, at(5))
    assert merge(longer, first) == merge(first, longer) == longer


@pytest.mark.parametrize(
    ("outcome", "attempt"),
    [
        ("running", "running"),
        ("replaced", "cancelled"),
        ("cancelled", "cancelled"),
        ("dead_lettered", "failed"),
    ],
)
def test_no_attempt_runs_on_in_an_execution_that_has_ended(outcome: Any, attempt: str) -> None:
    """A holder that was stopped between two leases leaves no other word than that it had fired."""
    row = ExecutionRow(
        key="acme/report:2026-12-01T12:00:00Z",
        scheduled_time=at(0),
        fires_at=at(0),
        outcome=outcome,
        seq=1,
        ended_at=None if outcome == "running" else at(2),
    )
    held = AttemptRow(attempt=1, delivery=1, execution_id=f"{row.key}:1", outcome="running", seq=1)
    failed = held.model_copy(update={"outcome": "failed", "ended_at": at(1)})
    first, second = history.with_ends(row, [failed, held])
    assert first == failed
    assert (second.outcome, second.ended_at) == (attempt, row.ended_at)
