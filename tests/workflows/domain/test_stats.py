"""A job's counts after the end of a run or of a stretch."""

from __future__ import annotations

import pytest

from tests.workflows.domain.states import at
from workflows.contracts.records import Outcome, Stats
from workflows.domain.stats import after_run, after_stretch

BEFORE = Stats(
    runs=10, succeeded=6, dead_lettered=3, skipped=4, missed=5, consecutive_failures=2, last_success_at=at(0)
)
RUNS: dict[Outcome, dict[str, object]] = {
    "succeeded": {"succeeded": 7, "consecutive_failures": 0, "last_success_at": at(9)},
    "dead_lettered": {"dead_lettered": 4, "consecutive_failures": 3},
    "cancelled": {},
}


@pytest.mark.parametrize(("outcome", "moved"), RUNS.items(), ids=RUNS)
def test_a_run_moves_the_counts(outcome: Outcome, moved: dict[str, object]) -> None:
    assert after_run(BEFORE, outcome, at(9)) == BEFORE.model_copy(update={"runs": 11, **moved})


@pytest.mark.parametrize("outcome", ["skipped", "missed"])
def test_a_stretch_is_no_run(outcome: Outcome) -> None:
    moved = {str(outcome): getattr(BEFORE, outcome) + 7}
    assert after_stretch(BEFORE, outcome, 7) == BEFORE.model_copy(update=moved)
