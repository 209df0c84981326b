"""What an operator reads of a job on its page in the Temporal UI."""

from __future__ import annotations

from tests.workflows.domain.states import at, begun, state
from workflows.contracts.job import BesideRun, ManualRun
from workflows.contracts.records import Pause
from workflows.domain import details


def _beside(number: int) -> BesideRun:
    return BesideRun(
        key=f"acme/report:manual-{number}",
        scheduled_time=at(0),
        fires_at=at(0),
        trigger="manual",
        outcome="running",
        seq=0,
        revision=1,
    )


def test_a_job_that_waits_says_what_comes_next() -> None:
    assert "next: 2026-12-01T12:01:00Z" in details.describe(state())


def test_a_paused_job_names_no_next_run() -> None:
    """What was planned before the pause is not what comes after it."""
    text = details.describe(state(pause=Pause(since=at(0), reason="maintenance")))
    assert "maintenance" in text
    assert "next:" not in text


def test_what_runs_and_waits_beside_the_loop_is_named() -> None:
    job = state(beside=[_beside(number) for number in range(12)])
    begun(job)
    job.triggers.append(ManualRun(request="now", at=at(0)))
    text = details.describe(job)
    assert "now: attempt 1 of" in text
    assert "beside: `acme/report:manual-9`" in text
    assert "manual-10" not in text
    assert "and 2 more beside" in text
    assert "asked for and not begun: 1" in text
