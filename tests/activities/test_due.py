"""A held run waits for its instant, on clocks that are wound by hand: never early, late only where it is."""

from __future__ import annotations

import dataclasses
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
    "a little behind the server": (VirtualClock(lambda _: -0.2), "succeeded", None),
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


BEHIND: dict[str, tuple[Skew, str, str | None, float]] = {
    "by seconds": (lambda _: -4, "succeeded", None, 20),
    "by more than a hold is long": (lambda _: -7200, "succeeded", None, 20),
    "and set right": (after(10, 0, before=-40), "returned", "clock_ahead", 10),
    "and set back further": (after(10, -44, before=-40), "succeeded", None, 24),
}


@pytest.mark.parametrize(("skew", "outcome", "reason", "passed"), BEHIND.values(), ids=BEHIND)
async def test_a_clock_proven_to_be_behind_makes_no_run_late(
    skew: Skew, outcome: str, reason: str | None, passed: float
) -> None:
    """The start was received before the server gave it: what is proven so is made up for, and no more."""
    worker = Worker(attempt(20), clock=VirtualClock(skew))
    report = await worker.report()
    assert (report.outcome, report.reason) == (outcome, reason)
    assert worker.clock.passed == pytest.approx(passed, abs=0.01)
    for truth, _, _ in worker.target.written:
        assert truth >= worker.inp.fires_at
        assert report.lateness_ms == 0
        assert report.started_at is not None
        assert report.started_at >= worker.inp.fires_at


@pytest.mark.parametrize("offset", [-40, -100, -40.2], ids=["right", "stale", "drifted"])
async def test_a_run_held_by_a_clock_that_is_set_right_gets_a_new_start(offset: float) -> None:
    """The offset is the least of ten minutes, and no proof of where the clock is now."""
    worker = Worker(attempt(60), clock=VirtualClock(after(10, 40)), server_behind=-40)
    worker.offset.measured(timedelta(seconds=offset))
    report = await worker.report()
    assert (report.reason, worker.target.written) == ("clock_ahead", [])


async def test_a_run_held_by_a_clock_that_is_set_back_is_given_back_soon_after_its_instant() -> None:
    """For a new start, which proves where the clock is now; a little is worth waiting for."""
    worker = Worker(attempt(20), clock=VirtualClock(after(1, -40)))
    report = await worker.report()
    assert (report.reason, worker.target.written) == ("clock_behind", [])
    assert 25 <= worker.clock.passed <= 27


async def test_a_run_in_flight_while_its_clock_is_set_right_ends_when_it_did() -> None:
    worker = Worker(attempt(39), clock=VirtualClock(after(5, 40)), server_behind=-40)
    worker.target.takes = 10
    report = await worker.report()
    assert (report.lateness_ms, report.started_at) == (1000, NOON + timedelta(seconds=40))
    assert report.ended_at == NOON + timedelta(seconds=50)


async def test_a_clock_set_back_with_the_servers_proves_nothing_of_the_runs_after() -> None:
    """Server and worker may have one clock: the offsets seen before it was set back say behind for long."""
    worker = Worker(attempt(20), server_behind=0)
    worker.environment.info = dataclasses.replace(
        worker.environment.info, started_time=NOON - timedelta(seconds=40)
    )
    worker.inp = attempt(-20)
    worker.clock.set(lambda _: -40)
    report = await worker.report()
    assert report.outcome == "succeeded"
    [(_, wall, _)] = worker.target.written
    assert wall >= worker.inp.fires_at


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


@pytest.mark.parametrize(("due", "outcome"), [(-7201, "succeeded"), (-7211, "late")], ids=["in time", "late"])
async def test_whether_a_run_is_late_goes_by_the_servers_time(due: float, outcome: str) -> None:
    """A worker whose clock is hours ahead of the server's passes over nothing that is on time."""
    worker = Worker(attempt(due, not_after=due + 10), server_behind=7200)
    report = await worker.report()
    assert report.outcome == outcome
    assert report.ended_at == NOON - timedelta(hours=2)
    if outcome == "succeeded":
        assert (report.started_at, report.lateness_ms) == (report.ended_at, 1000)


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
