"""A run with a callback in one worker, until its target has it; what may be said of a run that is lost."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest
from temporalio.activity import ActivityCancellationDetails, _CompleteAsyncError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.callback import Callbacks
from activities.fence import Fences, Passed
from activities.targets.delivery import Answer
from infra.callback_token import CallbackTokens
from tests.activities.virtual import NOON, SECOND, Worker, attempt
from workflows.contracts.attempt import AttemptReport, HeartbeatDetails
from workflows.contracts.callback import CallbackClaims
from workflows.contracts.incident import IncidentWord

TOKENS = CallbackTokens("a secret of the tests")
CALLBACK = {"completion": "callback"}


class HandOvers(Callbacks):
    """Hands over to nobody, and remembers it."""

    def __init__(self) -> None:
        super().__init__("https://carillon.example/", TOKENS)
        self.made: list[CallbackClaims] = []

    async def hand_over(self, claims: CallbackClaims, fences: Fences) -> None:
        self.made.append(claims)


def worker(answer: Answer | None = None, *, due: float = -1, **fields: Any) -> tuple[Worker, HandOvers]:
    over = HandOvers()
    definition = {**CALLBACK, **fields.pop("definition", {})}
    more = {name: fields.pop(name) for name in ("left", "native_attempt", "fences") if name in fields}
    made = Worker(attempt(due, definition=definition, **fields), callbacks=over, **more)
    made.target.answer = answer or Answer(outcome="succeeded", status_code=202)
    return made, over


async def outcome(of: Worker) -> AttemptReport | None:
    """The report, raised or returned; None: completed asynchronously."""
    try:
        return await of.report()
    except _CompleteAsyncError:
        return None
    except ApplicationError as failed:
        return AttemptReport.model_validate(failed.details[0])


def ends(of: Worker) -> list[str]:
    """Outcomes of attempts that have been recorded, but ``running``."""
    rows = [record.attempt for record in of.recorder.records if record.attempt is not None]
    return [row.outcome for row in rows if row.outcome != "running"]


ANSWERS: dict[str, tuple[Answer, str | None]] = {
    "202": (Answer(outcome="succeeded", status_code=202), None),
    "202, which the target does not list": (
        Answer(outcome="failed", status_code=202, error_kind="status"),
        None,
    ),
    "200": (Answer(outcome="succeeded", status_code=200), "succeeded"),
    "500": (Answer(outcome="failed", status_code=500, error_kind="status", retryable=True), "failed"),
    "202 without an end": (Answer(outcome="timed_out", status_code=202, retryable=True), "timed_out"),
}


@pytest.mark.parametrize(("answer", "came_to"), ANSWERS.values(), ids=ANSWERS)
async def test_a_202_hands_the_run_over_and_any_other_answer_ends_it(
    answer: Answer, came_to: str | None
) -> None:
    """The worker never writes the row of its end: the target may have reported one before."""
    made, over = worker(answer)
    report = await outcome(made)
    assert len(over.made) == (came_to is None)
    assert (None if report is None else report.outcome) == came_to
    assert report is None or not report.stored
    assert ends(made) == []
    assert made.attempts.active == 0


async def test_a_delivery_carries_a_token_for_itself() -> None:
    first_at = NOON - timedelta(minutes=10)
    left = HeartbeatDetails(
        native_attempt=1, phase="fired", deliveries=1, reaps=0,
        started_at=first_at, lateness_ms=7, at=first_at,
    )  # fmt: skip
    made, over = worker(left=left, native_attempt=2, attempt=3, definition={"timeout": 7200})
    await outcome(made)
    [(_, _, delivery)] = made.target.written
    assert delivery.callback is not None
    base, _, token = delivery.callback.rpartition("/")
    claims = TOKENS.open(token)
    assert base == "https://carillon.example/v1/callbacks"
    assert [claims] == over.made
    assert (claims.key, claims.attempt, claims.delivery) == (made.inp.occurrence.key, 3, 2)
    assert (claims.beat.phase, claims.beat.native_attempt, claims.beat.reaps) == ("fired", 2, 1)
    assert (claims.beat.started_at, claims.beat.lateness_ms) == (first_at, 7), "of the first firing"
    assert (claims.ends_by, claims.ends_at) == ("timeout", NOON + timedelta(hours=2))
    assert claims.expires_at > claims.ends_at


@pytest.mark.parametrize(
    ("answers", "said"),
    [([], 2), ([Passed.UNKNOWN], 2), ([Passed.GONE], 1), ([Passed.CANCELLED], 1)],
    ids=["taken", "the server silent", "ended meanwhile", "to be stopped"],
)
async def test_the_last_word_of_a_worker_tells_when_its_attempt_ends(
    answers: list[Passed], said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a beat from before the 202 reaches the server after it: it is said once more."""
    made, over = worker(fences=answers)
    await outcome(made)
    [claims] = over.made
    monkeypatch.setattr(over, "_tell", AsyncMock())
    await Callbacks.hand_over(over, claims, made.fences)
    assert [details for _, details in made.fences.asked] == [claims.beat] * said
    assert claims.beat.ends_at == claims.ends_at


async def test_what_is_left_of_max_duration_ends_an_attempt_before_its_timeout() -> None:
    made, over = worker(
        first_started_at=NOON - timedelta(hours=3), definition={"timeout": 7200, "max_duration": 4 * 3600}
    )
    await outcome(made)
    [claims] = over.made
    assert (claims.ends_by, claims.ends_at) == ("max_duration", NOON + timedelta(hours=1))


async def test_a_first_delivery_tells_when_the_execution_began() -> None:
    """The next holder, and whoever reports the end, count ``max_duration`` from there."""
    made, over = worker(due=-2)
    await outcome(made)
    [claims] = over.made
    assert (claims.beat.started_at, claims.beat.lateness_ms, claims.delivery) == (NOON, 2000, 1)


async def test_without_a_public_url_nothing_is_sent_and_no_retry_follows() -> None:
    made = Worker(attempt(-1, definition=CALLBACK))
    report = await outcome(made)
    assert report is not None
    assert (report.outcome, report.retryable, made.target.written) == ("failed", False, [])
    assert "CARILLON_PUBLIC_URL" in (report.error or "")


async def test_an_answer_that_repeats_the_token_is_kept_without_it() -> None:
    made, _ = worker()
    echo = TOKENS.seal(
        CallbackClaims.model_validate(
            {
                "task_token": "", "workflow_id": "job/acme/report", "run_id": "r", "activity_id": "1",
                "tenant": "acme", "job": "report", "key": made.inp.occurrence.key, "attempt": 1,
                "beat": {"native_attempt": 1, "phase": "fired", "deliveries": 1, "reaps": 0, "at": NOON},
                "sent_at": NOON, "ends_at": NOON, "ends_by": "timeout", "expires_at": NOON, "timeout_s": 1,
            }
        )
    )  # fmt: skip
    made.target.answer = Answer(outcome="failed", status_code=400, answer=f"you sent {echo}, which")
    report = await outcome(made)
    assert report is not None
    assert report.answer == "you sent [redacted], which"


# -- runs that are lost ----------------------------------------------------------------------------

THAWED: dict[str, tuple[Passed, list[str]]] = {
    "still ours": (Passed.YES, ["succeeded"]),
    "ours, and to be stopped": (Passed.CANCELLED, ["succeeded"]),
    "another worker's": (Passed.GONE, []),
    "the server silent": (Passed.UNKNOWN, []),
}


@pytest.mark.parametrize(("passed", "recorded"), THAWED.values(), ids=THAWED)
async def test_a_process_that_stood_still_asks_before_it_records_an_end(
    passed: Passed, recorded: list[str]
) -> None:
    """Its answer came while it was frozen; the run may have been delivered again since."""
    made = Worker(attempt(-1), fences=[passed])
    made.target.frozen_before_answer = 60
    report = await outcome(made)
    assert report is not None
    assert report.outcome == "succeeded", "if the server takes it, the job keeps the row"
    assert (ends(made), report.stored) == (recorded, bool(recorded))


async def test_a_process_that_kept_beating_does_not_ask() -> None:
    made = Worker(attempt(-1))
    made.target.takes = 300
    assert (await made.report()).stored
    assert (made.fences.asked, ends(made)) == ([], ["succeeded"])


@pytest.mark.parametrize(
    ("details", "recorded"),
    [
        (ActivityCancellationDetails(not_found=True), []),
        (ActivityCancellationDetails(timed_out=True), []),
    ],
    ids=["not found", "timed out"],
)
async def test_a_run_that_the_server_took_away_leaves_no_end(
    details: ActivityCancellationDetails, recorded: list[str]
) -> None:
    made = Worker(attempt(-1))
    made.target.takes = 60
    task = made.start()
    await made.until(5)
    made.environment.cancel(details)
    report = await made.ends(task)
    assert (report.outcome, report.reason, report.fired) == ("cancelled", "lease_lost", True)
    assert ends(made) == recorded


async def test_a_redelivery_that_is_another_workers_leaves_no_end() -> None:
    left = HeartbeatDetails(native_attempt=1, phase="fired", deliveries=1, reaps=0, at=NOON)
    made = Worker(attempt(20), native_attempt=2, left=left, fences=[Passed.GONE])
    report = await made.report()
    assert (report.outcome, report.fired, made.target.written, ends(made)) == ("cancelled", True, [], [])


# -- replaced runs, and runs in the way ------------------------------------------------------------


@pytest.mark.parametrize(("policy", "commands", "beats"), [
    ("replace", True, 3), ("replace", False, 30), ("forbid", False, 3),
])  # fmt: skip
async def test_a_run_that_may_be_replaced_beats_each_second_where_nobody_can_tell_it(
    policy: str, commands: bool, beats: int
) -> None:
    made = Worker(attempt(-1, definition={"concurrency": {"policy": policy}}), worker_commands=commands)
    made.target.takes = 30.5
    await made.report()
    assert beats <= len(made.beats) <= beats + 2


def overrun(at: datetime) -> dict[str, Any]:
    return {"at": at, "skips": 3}


@pytest.mark.parametrize(
    ("takes", "started_by", "told"),
    [(4.0, 0, 0), (8.0, 0, 1), (8.0, None, 1), (8.0, -1, 0)],
    ids=["over before", "active still", "it waited for its group", "started late: they wait for it"],
)
async def test_an_overrun_is_told_while_it_lasts(takes: float, started_by: int | None, told: int) -> None:
    words: list[tuple[float, IncidentWord]] = []

    async def tell(word: IncidentWord) -> None:
        words.append((made.clock.passed, word))

    late = None if started_by is None else NOON + started_by * SECOND
    said = {**overrun(NOON + 6 * SECOND), "started_by": late}
    made = Worker(attempt(-1, overrun=said), tell_incident=tell)
    made.target.takes = takes
    assert (await made.report()).outcome == "succeeded"
    assert [word.kind for _, word in words] == ["consecutive_skips"] * told
    assert all(at == pytest.approx(6, abs=0.1) for at, _ in words)


async def test_an_overrun_that_cannot_be_told_is_told_again_and_is_not_in_the_way() -> None:
    tries = 0

    async def tell(word: IncidentWord) -> None:
        nonlocal tries
        tries += 1
        raise RPCError("away", RPCStatusCode.UNAVAILABLE, b"")

    made = Worker(attempt(-1, overrun=overrun(NOON)), tell_incident=tell)
    made.target.takes = 12
    assert (await made.report()).lateness_ms == 1000
    assert tries == 3
