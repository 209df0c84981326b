"""A held run waits for its instant, on clocks that are wound by hand: never early, late only where it is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from activities.fence import Passed
from tests.activities.virtual import NOON, Skew, VirtualClock, Worker, attempt, left


def after(seconds: float, by: float, before: float = 0.0) -> Skew:
    return lambda passed: before if passed < seconds else by


# -- never early -----------------------------------------------------------------------------------

CLOCKS: dict[str, tuple[VirtualClock, str, str | None]] = {
    "right": (VirtualClock(), "succeeded", None),
    "timers that come a little early": (VirtualClock(wakes_early_by=0.005), "succeeded", None),
    "behind the server": (VirtualClock(lambda _: -4), "succeeded", None),
    "a little fast": (VirtualClock(lambda passed: passed * 0.005), "succeeded", None),
    "slow": (VirtualClock(lambda passed: -passed * 0.05), "succeeded", None),
    "set back a little": (VirtualClock(after(10, -3)), "succeeded", None),
    "set back by hours": (VirtualClock(after(10, -7200)), "returned", "clock_behind"),
    "set ahead by hours": (VirtualClock(after(10, 7200)), "returned", "clock_ahead"),
    "set ahead by a second": (VirtualClock(after(19.5, 1)), "returned", "clock_ahead"),
    "much too fast": (VirtualClock(lambda passed: passed * 0.5), "returned", "clock_ahead"),
    "ahead and set right": (VirtualClock(after(5, 0, before=2)), "succeeded", None),
}


@pytest.mark.parametrize(("clock", "outcome", "reason"), CLOCKS.values(), ids=CLOCKS)
async def test_a_held_run_is_never_fired_early(clock: VirtualClock, outcome: str, reason: str | None) -> None:
    """Not by the worker's wall clock, and not by the truth by more than a clock may be off unnoticed."""
    worker = Worker(attempt(20), clock=clock)
    report = await worker.report()
    assert (report.outcome, report.reason) == (outcome, reason)
    assert len(worker.target.written) == (outcome == "succeeded")
    for truth, wall, _ in worker.target.written:
        assert wall >= worker.inp.fires_at
        assert truth >= worker.inp.fires_at - timedelta(milliseconds=250)


async def test_a_run_due_is_fired_at_once_and_on_time_to_the_millisecond() -> None:
    worker = Worker(attempt(1.5))
    report = await worker.report()
    assert report.lateness_ms == 0
    assert worker.fences.asked == [], "the start of the activity is fence enough"


async def test_a_worker_ahead_of_the_server_holds_nothing() -> None:
    worker = Worker(attempt(20), server_behind=0.3)
    report = await worker.report()
    assert (report.outcome, report.reason, worker.clock.passed) == ("returned", "clock_ahead", 0)
    soon = Worker(attempt(-1), server_behind=2)
    report = await soon.report()
    assert (report.reason, soon.target.written) == ("clock_ahead", []), "it seems to be due, and is not"
    due = Worker(attempt(-1), server_behind=0.3)
    assert (await due.report()).outcome == "succeeded", "what is due by the server's timer is fired"


async def test_a_worker_a_little_ahead_of_the_server_holds() -> None:
    assert (await Worker(attempt(20), server_behind=0.2).report()).outcome == "succeeded"


async def test_a_hold_longer_than_there_can_be_is_returned_with_its_time() -> None:
    worker = Worker(attempt(36))
    report = await worker.report()
    assert (report.reason, report.resume_at) == ("clock_behind", worker.inp.fires_at)


# -- late ------------------------------------------------------------------------------------------

LATE: dict[str, tuple[float, float | None, list[Passed], str]] = {
    "due in time": (-1, 0, [], "succeeded"),
    "too late from the start": (-5, -1, [], "late"),
    "no bound": (-5000, None, [], "succeeded"),
    "held, without any grace": (20, 20, [], "succeeded"),
    "held shortly, without any grace": (1, 1, [], "succeeded"),
    "the server silent at the fence, without any grace": (20, 20, [Passed.UNKNOWN] * 200, "succeeded"),
}


@pytest.mark.parametrize(("due", "not_after", "fences", "outcome"), LATE.values(), ids=LATE)
async def test_what_is_late(due: float, not_after: float | None, fences: list[Passed], outcome: str) -> None:
    worker = Worker(attempt(due, not_after=not_after), fences=fences)
    assert (await worker.report()).outcome == outcome
    assert len(worker.target.written) == (outcome == "succeeded")


async def test_a_process_that_stood_still_past_the_grace_finds_its_held_run_late() -> None:
    """A suspended machine follows the same policy as one that was down."""
    worker = Worker(attempt(20, not_after=25))
    task = worker.start()
    await worker.until(5)
    worker.clock.stand_still(78 * 60)
    report = await worker.ends(task)
    assert (report.outcome, worker.target.written) == ("late", [])


async def test_what_an_earlier_holder_sent_is_not_late() -> None:
    """It is not known to have failed: it is sent again under its own id."""
    lost = left("fired", deliveries=1, started_at=NOON, lateness_ms=3)
    worker = Worker(attempt(-100, not_after=-50), native_attempt=2, left=lost)
    report = await worker.report()
    assert (report.outcome, report.deliveries, report.lateness_ms) == ("succeeded", 2, 3)
