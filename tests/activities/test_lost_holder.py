"""What a holder makes of the one that lost the run before it: reaps, deliveries, and an end to them."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from activities.fence import Passed
from tests.activities.virtual import NOON, SECOND, Worker, attempt, left
from workflows.contracts.attempt import NATIVE_RETRY, AttemptReport, HeartbeatDetails
from workflows.contracts.names import execution_id
from workflows.domain.look_ahead import fraction

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


def with_target(ends_in: float, **fields: object) -> HeartbeatDetails:
    """The word that renews the lease of a run that its target took over; seconds from now."""
    ends_at = NOON + SECOND * ends_in
    return left("fired", deliveries=1, at=ends_at - 40 * SECOND, ends_at=ends_at, worker="lost", **fields)


@pytest.mark.parametrize(
    ("last", "native", "came_to"),
    [
        pytest.param(with_target(0.5), 2, ("succeeded", 2, 1), id="its time is not used up"),
        pytest.param(with_target(0), 2, ("timed_out", 1, 0), id="its time is used up"),
        pytest.param(with_target(-5), 3, ("timed_out", 1, 0), id="and the last holder left no word"),
        pytest.param(with_target(-5, reaps=2), 2, ("timed_out", 1, 2), id="and leases were lost before"),
        pytest.param(
            with_target(-5, reaps=3), 2, ("timed_out", 1, 3), id="and no lease may be lost any more"
        ),
    ],
)
async def test_a_target_that_used_up_its_time_is_no_lost_holder(
    last: HeartbeatDetails, native: int, came_to: tuple[str, int, int]
) -> None:
    worker = Worker(attempt(-60, definition={"timeout": 40}), native_attempt=native, left=last)
    if came_to[0] == "succeeded":
        report = await worker.report()
    else:
        with pytest.raises(ApplicationError) as failed:
            await worker.report()
        report = AttemptReport.model_validate(failed.value.details[0])
        assert (report.error, report.fired_at) == ("the target did not report an end within 40 s", last.at)
        assert (report.status_code, report.retryable, report.reason, report.worker) == (
            202,
            True,
            None,
            "lost",
        )
        assert worker.target.written == []
    assert (report.outcome, report.deliveries, report.reaps) == came_to


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
    "was not the first, which may have fired": (3, None, 35, 1),
    "was the third, and nobody said anything": (4, None, 65, 1),
    "was the third, and the first was to hold": (4, None, 55, 0),
    "was not the first, which said that it needs no fence": (3, left("held", unfenced=True), 0, 1),
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
