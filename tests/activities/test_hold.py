"""One attempt in one worker, under clocks that are set, servers that are silent and holders that died."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from activities.fence import START_COUNTS_FOR, Passed
from activities.targets.delivery import Answer, ErrorKind
from tests.activities.virtual import NOON, SECOND, Skew, VirtualClock, Worker, attempt
from workflows.contracts.attempt import NATIVE_RETRY, AttemptReport, HeartbeatDetails
from workflows.contracts.names import execution_id
from workflows.domain.look_ahead import fraction


def left(phase: str, native_attempt: int = 1, **fields: object) -> HeartbeatDetails:
    return HeartbeatDetails.model_validate(
        {"native_attempt": native_attempt, "phase": phase, "deliveries": 0, "reaps": 0, "at": NOON, **fields}
    )


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


# -- fence -----------------------------------------------------------------------------------------


async def test_a_long_hold_is_fenced_once_before_its_instant() -> None:
    worker = Worker(attempt(20))
    await worker.report()
    [(asked, details)] = worker.fences.asked
    assert worker.inp.fires_at - SECOND < asked < worker.inp.fires_at
    assert (details.phase, details.deliveries, details.native_attempt) == ("fired", 1, 1)


async def test_a_fence_that_became_stale_is_renewed_before_anything_is_written() -> None:
    """The process stands still between the fence and the write: the run may be another's by now."""
    worker = Worker(attempt(20))
    worker.target.frozen = [10, 0]
    report = await worker.report()
    assert (report.outcome, report.deliveries) == ("succeeded", 1)
    [(written, _, _)] = worker.target.written
    assert [asked < worker.inp.fires_at for asked, _ in worker.fences.asked] == [True, False]
    assert written - worker.fences.asked[-1][0] <= START_COUNTS_FOR


async def test_a_start_that_became_stale_is_fenced_before_anything_is_written() -> None:
    worker = Worker(attempt(-1))
    worker.target.frozen = [10, 0]
    assert (await worker.report()).outcome == "succeeded"
    assert len(worker.fences.asked) == 1


@pytest.mark.parametrize("refusal", [Passed.CANCELLED, Passed.GONE], ids=str)
@pytest.mark.parametrize("frozen", [False, True], ids=["held", "thawed"])
async def test_nothing_is_written_after_a_fence_was_refused(refusal: Passed, frozen: bool) -> None:
    worker = Worker(attempt(20), fences=[Passed.YES, refusal] if frozen else [refusal])
    worker.target.frozen = [10] if frozen else []
    report = await worker.report()
    assert (report.outcome, report.fired, worker.target.written) == ("cancelled", False, [])


async def test_a_silent_server_makes_a_run_late_and_does_not_stop_it() -> None:
    worker = Worker(attempt(20), fences=[Passed.UNKNOWN] * 50)
    report = await worker.report()
    assert report.outcome == "succeeded"
    assert report.lateness_ms is not None
    assert report.lateness_ms > 5000


async def test_beats_after_the_fence_say_what_the_fence_said() -> None:
    """A beat of another content would hide from the next holder that the run may have been fired."""
    worker = Worker(attempt(20, definition={"heartbeat_timeout": 3}))
    worker.target.takes = 10
    await worker.report()
    [(fenced, details)] = worker.fences.asked
    phases = [beat.phase for beat in worker.beats]
    assert phases == sorted(phases, reverse=True), "held, then fired"
    assert {beat.phase for beat in worker.beats if beat.at > fenced} <= {"fired"}
    assert all(beat == details for beat in worker.beats if beat.phase == "fired")
    assert phases.count("fired") >= 10


async def test_the_lease_is_kept_each_third_while_held_and_while_running() -> None:
    worker = Worker(attempt(29, definition={"heartbeat_timeout": 6}))
    worker.target.takes = 30
    await worker.report()
    assert len(worker.beats) >= 27


# -- lost holders ----------------------------------------------------------------------------------

LOST: dict[str, tuple[int, HeartbeatDetails | None, int, int]] = {
    "the first": (1, None, 0, 0),
    "lost while it fired": (2, left("fired", deliveries=1), 1, 1),
    "lost while it was held": (2, left("held"), 0, 0),
    "lost without a word": (2, None, 0, 0),
    "the one before the last fired, and was counted": (3, left("held", 2, deliveries=1, reaps=1), 1, 1),
    "the one before the last fired, the last left no word": (3, left("fired", 1, deliveries=1), 0, 1),
    "twice": (3, left("fired", 2, deliveries=2, reaps=1), 2, 2),
}


@pytest.mark.parametrize(("native", "lost", "reaps", "deliveries"), LOST.values(), ids=LOST)
async def test_only_a_lease_lost_by_the_previous_holder_while_it_fired_is_a_reap(
    native: int, lost: HeartbeatDetails | None, reaps: int, deliveries: int
) -> None:
    worker = Worker(attempt(-1), native_attempt=native, left=lost)
    report = await worker.report()
    assert (report.reaps, report.deliveries) == (reaps, deliveries + 1)
    assert worker.target.written[0][2].delivery == deliveries + 1
    assert worker.target.written[0][2].execution_id.endswith(":1")


LEASE = attempt().definition.heartbeat_timeout

SILENT: dict[str, tuple[int, HeartbeatDetails | None, float, int]] = {
    "began when it was due": (2, None, 0, 1),
    "began so shortly before that it needed no fence": (2, None, -2, 1),
    "began earlier, and would have said that it fires": (2, None, -2.5, 0),
    "was held, without need of a fence": (2, left("held", unfenced=True), -1.5, 1),
    "was held for longer": (2, left("held"), -10, 0),
    "said that it fired": (2, left("fired", deliveries=1), 0, 1),
    "was not the first, and so fences": (3, left("held"), 0, 0),
    "was not the first, and the first was silent too": (3, None, 0, 0),
}


@pytest.mark.parametrize(("native", "lost", "began", "sent"), SILENT.values(), ids=SILENT)
async def test_a_holder_that_may_have_died_between_its_write_and_its_first_word_counts(
    native: int, lost: HeartbeatDetails | None, began: float, sent: int
) -> None:
    """``began``: of the lost holder, in seconds after the instant. Its delivery had a number, and so must
    the next one have another; a job that kills its workers at once would never run out of leases."""
    inp = attempt(-20)
    given_again = inp.fires_at + SECOND * began + LEASE + NATIVE_RETRY
    worker = Worker(inp, native_attempt=native, left=lost, given_again=given_again)
    report = await worker.report()
    assert (report.reaps, report.deliveries) == (sent, sent + 1)
    assert len(worker.fences.asked) == 1, "whoever comes second says so before it fires"


@pytest.mark.parametrize(
    ("answers", "takes", "asked"),
    [
        pytest.param([], 0.0, 1, id="at-once"),
        pytest.param([Passed.UNKNOWN, Passed.UNKNOWN], 0.0, 4, id="silent-for-a-while"),
        pytest.param([], 0.8, 2, id="slow"),
        pytest.param([Passed.UNKNOWN, Passed.GONE], 0.0, 2, id="gone"),
    ],
)
async def test_a_fence_that_met_a_stalled_server_is_passed_once_more(
    answers: list[Passed], takes: float, asked: int
) -> None:
    """What waited with it at the server may be heard after it; only the next word is the last for sure."""
    worker = Worker(attempt(20), fences=answers)
    worker.fences.takes = takes
    await worker.report()
    assert len(worker.fences.asked) == asked
    assert len(worker.target.written) == (Passed.GONE not in answers)


async def test_no_beat_says_less_than_the_fence_that_is_on_its_way() -> None:
    """The server keeps the word that came last; if that were ``held``, the next holder would take a run
    that had fired for one that had not."""
    worker = Worker(attempt(20, definition={"heartbeat_timeout": 3}))
    worker.fences.takes = 2.5
    worker.target.takes = 3
    await worker.report()
    said = [beat.phase for beat in worker.beats if beat.at >= worker.fences.asked[0][1].at]
    assert len(said) >= 4
    assert set(said) == {"fired"}


@pytest.mark.parametrize(("hold", "unfenced"), [(1.8, True), (10, False)])
async def test_who_holds_says_whether_a_fence_will_follow(hold: float, unfenced: bool) -> None:
    worker = Worker(attempt(hold, definition={"heartbeat_timeout": 3}))
    await worker.report()
    held = [beat for beat in worker.beats if beat.phase == "held"]
    assert {beat.unfenced for beat in held} == {unfenced}


async def test_reaps_of_earlier_activities_of_the_same_execution_count_on() -> None:
    worker = Worker(
        attempt(-1, reaps=2, deliveries=3), native_attempt=2, left=left("fired", deliveries=4, reaps=2)
    )
    report = await worker.report()
    assert (report.reaps, report.deliveries) == (3, 5)


async def test_a_run_that_lost_four_leases_is_not_fired_again() -> None:
    lost = left("fired", 4, deliveries=4, reaps=3, started_at=NOON - SECOND)
    worker = Worker(attempt(-1), native_attempt=5, left=lost)
    with pytest.raises(ApplicationError) as failed:
        await worker.report()
    report = AttemptReport.model_validate(failed.value.details[0])
    assert (report.reason, report.retryable, worker.target.written) == ("leases_lost", False, [])
    assert report.fired


@pytest.mark.parametrize(("reaps", "waits"), [(0, False), (1, True), (2, True)])
async def test_from_the_second_redelivery_on_a_run_waits_up_to_four_seconds(reaps: int, waits: bool) -> None:
    inp = attempt(-1)
    worker = Worker(inp, native_attempt=2, left=left("fired", deliveries=1, reaps=reaps))
    await worker.report()
    [(written, _, _)] = worker.target.written
    wanted = 4 * fraction("reap", execution_id(inp.occurrence.key, 1), str(reaps + 1)) if waits else 0
    assert (written - NOON).total_seconds() == pytest.approx(wanted, abs=0.01)


# -- what is recorded ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "error", "recorded"),
    [
        ("dns", "a.test could not be resolved: timed out", "dns: a.test could not be resolved: timed out"),
        (
            "blocked",
            "address not allowed: 10.0.0.5 is not public",
            "blocked: address not allowed: 10.0.0.5 is",
        ),
        (
            "tls",
            "a.test:443: TLS failed: certificate has expired",
            "tls: a.test:443: TLS failed: certificate",
        ),
        ("timeout", "no complete answer within 1 s", "timeout: no complete answer within 1 s"),
        ("status", "answered 500 Internal Server Error", "answered 500 Internal Server Error"),
    ],
)
async def test_the_record_says_what_kind_of_trouble_it_was(
    kind: ErrorKind, error: str, recorded: str
) -> None:
    """A name that is not found, an address that is forbidden and a bad certificate are three things."""
    worker = Worker(attempt(-1))
    worker.target.answer = Answer(outcome="failed", error=error, error_kind=kind)
    with pytest.raises(ApplicationError) as failed:
        await worker.report()
    told = AttemptReport.model_validate(failed.value.details[0]).error
    assert told is not None
    assert told.startswith(recorded)


# -- stops and the end of a worker -----------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.5, 19.9], ids=["asleep", "behind the fence"])
async def test_a_cancel_that_comes_before_the_write_stops_the_run(seconds: float) -> None:
    worker = Worker(attempt(20))
    task = worker.start()
    await worker.until(seconds)
    worker.environment.cancel()
    report = await worker.ends(task)
    assert (report.outcome, report.fired, worker.target.written) == ("cancelled", False, [])


async def test_a_cancel_that_comes_after_the_end_does_not_undo_it() -> None:
    """The row is being stored: what was delivered is reported, or it would be sent again."""
    worker = Worker(attempt(-1))
    worker.recorder.allowed = asyncio.Event()
    task = worker.start()
    await worker.recorder.asked.wait()
    worker.environment.cancel()
    await asyncio.sleep(0)
    worker.recorder.allowed.set()
    report = await worker.ends(task)
    assert (report.outcome, report.fired) == ("succeeded", True)


async def test_a_worker_that_stops_fires_what_falls_due_in_its_grace_and_returns_the_rest() -> None:
    soon, later = Worker(attempt(4)), Worker(attempt(20))
    for worker, outcome in ((soon, "succeeded"), (later, "returned")):
        task = worker.start()
        await worker.until(1)
        stop = asyncio.ensure_future(worker.attempts.stop(timedelta(seconds=5)))
        await worker.clock.run(stop)
        report = await worker.ends(task)
        assert report.outcome == outcome
    assert report.reason == "worker_stopping"
    assert later.clock.passed < 5, "nobody waits for what will not fire"


async def test_a_run_in_flight_at_the_end_of_the_grace_is_returned_and_is_no_reap() -> None:
    worker = Worker(attempt(-1))
    worker.target.takes = 60
    task = worker.start()
    await worker.until(1)
    stop = asyncio.ensure_future(worker.attempts.stop(timedelta(seconds=5)))
    await worker.clock.run(stop)
    report = await worker.ends(task)
    assert (report.outcome, report.reason) == ("returned", "worker_stopping")
    assert (report.fired, report.deliveries, report.reaps) == (True, 1, 0)


async def test_records_that_ride_along_are_stored_whatever_becomes_of_the_run() -> None:
    first = Worker(attempt(-1))
    await first.report()
    riding = list(first.recorder.records)
    second = Worker(attempt(20, records=riding), fences=[Passed.CANCELLED])
    report = await second.report()
    assert (report.outcome, report.carried_stored) == ("cancelled", True)
    assert second.recorder.records == riding


async def test_max_duration_counts_from_the_first_firing_of_the_execution() -> None:
    inp = attempt(
        -1, attempt=3, first_started_at=NOON - timedelta(hours=2), definition={"max_duration": 3600}
    )
    worker = Worker(inp)
    with pytest.raises(ApplicationError) as failed:
        await worker.report()
    report = AttemptReport.model_validate(failed.value.details[0])
    assert (report.outcome, report.reason) == ("timed_out", "max_duration")
    assert worker.target.written == []
