"""A job's counts, moved by the end of executions."""

from __future__ import annotations

from datetime import datetime

from workflows.contracts.records import Outcome, Stats


def after_run(stats: Stats, outcome: Outcome, ended_at: datetime) -> Stats:
    """Counts after an execution ended for good with ``outcome``; one that was stopped did not fail."""
    succeeded = outcome == "succeeded"
    stopped = outcome in ("cancelled", "replaced")
    failures = 0 if succeeded else stats.consecutive_failures + (not stopped)
    return Stats(
        runs=stats.runs + 1,
        succeeded=stats.succeeded + succeeded,
        dead_lettered=stats.dead_lettered + (outcome == "dead_lettered"),
        skipped=stats.skipped,
        missed=stats.missed,
        consecutive_failures=failures,
        last_success_at=ended_at if succeeded else stats.last_success_at,
    )


def after_stretch(stats: Stats, outcome: Outcome, count: int) -> Stats:
    """Counts after ``count`` occurrences were ``skipped`` or ``missed``."""
    field = "skipped" if outcome == "skipped" else "missed"
    return stats.model_copy(update={field: getattr(stats, field) + count})
