"""One attempt in one worker, under clocks that are set, servers that are silent and holders that died."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from activities.fence import Passed
from activities.targets.delivery import Answer, ErrorKind
from tests.activities.virtual import NOON, SECOND, Worker, attempt
from workflows.contracts.attempt import START_COUNTS_FOR, AttemptReport

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


@pytest.mark.parametrize("hold", [2.2, 2.6, 3.1, 7.4, 20])
async def test_no_beat_that_says_held_is_on_its_way_when_the_fence_is_asked_for(hold: float) -> None:
    """The server may take the two in either order, and the next holder goes by the last."""
    worker = Worker(attempt(hold, definition={"heartbeat_timeout": 3}))
    await worker.report()
    [(asked, _)] = worker.fences.asked
    held = [beat.at for beat in worker.beats if beat.phase == "held"]
    assert held
    assert max(held) <= asked - 0.5 * SECOND


@pytest.mark.parametrize(("hold", "lease", "beaten"), [(9, 30, False), (20, 30, True), (9, 3, True)])
async def test_a_fence_replaces_beats_only_where_there_were_any(
    hold: float, lease: int, beaten: bool
) -> None:
    """Each beat is a write of the server: a short hold costs one, which is the fence."""
    worker = Worker(attempt(hold, definition={"heartbeat_timeout": lease}))
    await worker.report()
    assert worker.fences.after_beats == [beaten]
    assert bool(worker.beats) == beaten


async def test_the_lease_is_kept_each_third_while_held_and_while_running() -> None:
    worker = Worker(attempt(29, definition={"heartbeat_timeout": 6}))
    worker.target.takes = 30
    await worker.report()
    assert len(worker.beats) >= 27


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
