"""What the end of an execution means for dead letters, and what their words mean for a letter."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.workflows.domain.states import NOON, again, at, begun, comes_back, definition, report, rows, state
from workflows.contracts import names
from workflows.contracts.actor import Actor
from workflows.contracts.attempt import Occurrence
from workflows.contracts.dead_letter import KEPT_FOR, OPEN_A_JOB, DeadLetter, DeadLetterState, LetterEnded
from workflows.contracts.errands import ERRANDS_MAX, Errand, OpenDeadLetter, TellDeadLetter, TellIncident
from workflows.contracts.incident import IncidentWord
from workflows.contracts.job import BesideRun, JobState, QueuedRun, RunEnded
from workflows.contracts.records import LastRun, sequence
from workflows.domain import dead_letter, errands, job_changes, job_sources, job_state, letters

KEY = "acme/report:2026-12-01T12:01:00Z"


def told(job: JobState) -> list[tuple[str, str]]:
    """What waits to be told of letters: kind or outcome, and the key."""
    found = []
    for errand in job.errands:
        if isinstance(errand, OpenDeadLetter):
            found.append(("open", errand.letter.occurrence.key))
        elif isinstance(errand, TellDeadLetter):
            found.append((errand.ended.outcome, errand.ended.key))
    return found


def the_letter(job: JobState) -> DeadLetter:
    [letter] = [errand.letter for errand in job.errands if isinstance(errand, OpenDeadLetter)]
    return letter


def one_try(**fields: Any) -> JobState:
    return state(definition=definition(retry={"max_attempts": 1}), **fields)


def redriven(job: JobState, trigger: str = "redrive", attempt: int = 3) -> None:
    """The occurrence at one past noon is run again."""
    occurrence = Occurrence.model_validate(
        {"key": KEY, "trigger": trigger, "scheduled_time": at(1), "fires_at": at(1)}
    )
    job_sources.begin_redrive(job, QueuedRun(occurrence=occurrence, attempt=attempt, at=at(2)))


def test_the_last_failure_leaves_the_whole_story() -> None:
    """Without answers; the next attempt is one that was not made."""
    job = state(definition=definition(retry={"max_attempts": 2, "initial_interval": 1, "jitter": 0}))
    begun(job)
    comes_back(job, report("failed", fired=1, ended=1.1, status_code=500, answer="no"))
    assert told(job) == []
    comes_back(job, report("failed", fired=1.2, ended=1.3, status_code=503, answer="no"))
    letter = the_letter(job)
    assert [(one.attempt, one.status_code, one.answer) for one in letter.attempts] == [
        (1, 500, None), (2, 503, None),
    ]  # fmt: skip
    assert (letter.next_attempt, letter.failed_at, job.open_letters) == (3, at(1.3), [KEY])
    assert (letter.execution.reason, letter.occurrence.trigger) == ("max_attempts", "schedule")


@pytest.mark.parametrize(
    ("trigger", "outcome", "expected"),
    [
        ("redrive", "succeeded", [("succeeded", KEY)]),
        ("redrive", "cancelled", [("cancelled", KEY)]),
        ("redrive", "failed", [("open", KEY)]),
        ("backfill", "succeeded", [("succeeded", KEY)]),
        ("backfill", "cancelled", [("cancelled", KEY)]),
        ("rerun", "succeeded", []),
        ("rerun", "cancelled", []),
    ],
)
def test_a_letter_hears_how_its_occurrence_ended(
    trigger: str, outcome: str, expected: list[tuple[str, str]]
) -> None:
    job = one_try()
    redriven(job, trigger)
    comes_back(job, report(outcome, fired=2, ended=2.1))
    assert told(job) == expected


@pytest.mark.parametrize(
    ("suffix", "outcome", "as_of_0_4", "expected"),
    [
        pytest.param("+b2", "succeeded", True, [("succeeded", KEY)], id="a backfill of all"),
        pytest.param("+r1", "succeeded", True, [("succeeded", KEY)], id="a rerun"),
        pytest.param("+b2+r1", "succeeded", True, [("succeeded", KEY)], id="a rerun of a backfill"),
        pytest.param("+b2", "cancelled", True, [], id="no success"),
        pytest.param("+b2", "succeeded", False, [], id="begun by 0.3.0"),
    ],
)
@pytest.mark.parametrize("beside", [False, True], ids=["in the loop", "beside"])
def test_a_success_under_another_key_closes_the_letter_of_its_occurrence(
    suffix: str, outcome: str, as_of_0_4: bool, expected: list[tuple[str, str]], beside: bool
) -> None:
    job = one_try(open_letters=[KEY], as_of_0_4=as_of_0_4)
    row: dict[str, Any] = {"key": KEY + suffix, "scheduled_time": at(1), "trigger": "backfill"}
    if beside:
        job.beside = [BesideRun.model_validate({**row, "fires_at": at(2), "outcome": "scheduled", "seq": 0})]
        last = LastRun.model_validate({**row, "outcome": outcome, "ended_at": at(3)})
        job_changes.ended_beside(job, RunEnded(last_run=last, ended_at=at(3)))
    else:
        occurrence = Occurrence.model_validate({**row, "fires_at": at(2)})
        job_sources.begin_redrive(job, QueuedRun(occurrence=occurrence, at=at(2)))
        comes_back(job, report(outcome, fired=2, ended=3))
    assert told(job) == expected


def test_a_success_tells_no_letter_that_is_not_open() -> None:
    job = one_try(as_of_0_4=True)
    redriven(job, "rerun")
    comes_back(job, report("succeeded", fired=2, ended=2.1))
    assert told(job) == []


def test_a_backfill_of_what_was_never_tried_tells_nobody() -> None:
    job = one_try()
    redriven(job, "backfill", attempt=1)
    comes_back(job, report("succeeded", fired=2, ended=2.1))
    assert told(job) == []


def test_a_redrive_that_is_cancelled_before_it_begins_tells_its_letter() -> None:
    job = one_try()
    occurrence = Occurrence(key=KEY, trigger="redrive", scheduled_time=at(1), fires_at=at(1))
    job.redrives = [QueuedRun(occurrence=occurrence, attempt=3, at=at(2))]
    assert job_changes.cancel_waiting(job, KEY, at(2))
    [errand] = job.errands
    assert isinstance(errand, TellDeadLetter)
    assert (errand.ended.outcome, errand.ended.next_attempt) == ("cancelled", 4)


@pytest.mark.parametrize(
    ("how", "reason", "next_attempt"),
    [("paused", "paused", 3), ("leases", "leases_lost", 2), ("max_duration", "max_duration", 2)],
)
def test_every_end_without_success_leaves_a_letter(how: str, reason: str, next_attempt: int) -> None:
    job = state(definition=definition(max_reaps=0))
    run, inp = begun(job)
    if how == "leases":
        run.deliveries = run.reaps = 1
        job_state.lease_lost(job, run, inp, left=None, stopped=None, now=at(1.5))
    elif how == "max_duration":
        comes_back(job, report("timed_out", fired=1, ended=1.1, reason="max_duration"))
    else:
        comes_back(job, report("failed", fired=1, ended=1.1))
        run, inp = again(job)
        job_state.settle(job, run, inp, "dead_lettered", "paused", at(1.2))
    letter = the_letter(job)
    assert (letter.execution.reason, letter.next_attempt) == (reason, next_attempt)
    assert letter.execution.seq < sequence(letter.next_attempt, 1, 1), "what a redrive tells is newer"
    assert [one.attempt for one in letter.attempts] == [1]


def test_of_too_many_open_letters_the_oldest_is_closed() -> None:
    """Those of runs beside the loop count; a closed one makes room."""
    job = one_try(open_letters=[f"acme/report:old-{n}" for n in range(OPEN_A_JOB)])
    letters.closed(job, "acme/report:old-7")
    begun(job)
    comes_back(job, report("failed", fired=1, ended=1.1))
    assert told(job) == [("open", KEY)]
    row = {"key": "acme/report:manual-x", "scheduled_time": at(2), "trigger": "manual"}
    job.beside = [BesideRun.model_validate({**row, "fires_at": at(2), "outcome": "scheduled", "seq": 0})]
    last = LastRun.model_validate({**row, "outcome": "dead_lettered", "ended_at": at(3)})
    job_changes.ended_beside(job, RunEnded(last_run=last, ended_at=at(3)))
    assert told(job)[1:] == [("evicted", "acme/report:old-0")]
    assert len(job.open_letters) == OPEN_A_JOB
    assert job.open_letters[-2:] == [KEY, "acme/report:manual-x"]


# -- the letter itself -----------------------------------------------------------------------------


def opened(**fields: Any) -> DeadLetterState:
    job = one_try()
    begun(job)
    comes_back(job, report("failed", fired=1, ended=1.1))
    found = dead_letter.opened(the_letter(job))
    return found.model_copy(update=fields)


def ended(outcome: str, **fields: Any) -> LetterEnded:
    return LetterEnded.model_validate({"key": KEY, "outcome": outcome, "at": at(5), **fields})


@pytest.mark.parametrize(
    ("status", "outcome", "expected"),
    [
        ("redriving", "succeeded", ("redriven", 4, 1)),
        ("open", "succeeded", ("redriven", 4, 1)),
        ("redriving", "cancelled", ("open", 4, 1)),
        ("redriving", "replaced", ("open", 4, 1)),
        ("open", "cancelled", ("open", 4, 2)),
        ("redriving", "evicted", ("evicted", 4, 1)),
        ("discarded", "succeeded", ("discarded", 2, 1)),
    ],
)
def test_what_a_word_makes_of_a_letter(status: str, outcome: str, expected: tuple[str, int, int]) -> None:
    """Status, next attempt, redrives. One that nobody knew of gives the next redrive another name."""
    found = opened(status=status, redrives=1)
    dead_letter.ended(found, ended(outcome, next_attempt=4))
    assert (found.status, found.letter.next_attempt, found.redrives) == expected


def test_a_letter_that_fails_again_keeps_what_it_was_and_is_kept_longer() -> None:
    """Told twice, or told of what is known already, it changes nothing."""
    found = opened(status="redriving", redrives=1)
    known = found.letter
    row = known.execution.model_copy(update={"ended_at": at(9)})
    occurrence = known.occurrence.model_copy(update={"trigger": "redrive"})
    anew = known.model_copy(
        update={"execution": row, "occurrence": occurrence, "next_attempt": 5, "opened_at": at(9)}
    )
    for letter in (known, anew, anew, known):
        dead_letter.failed_again(found, letter)
    assert (found.status, found.change, found.letter.next_attempt) == ("open", 2, 5)
    assert (found.letter.occurrence, found.letter.opened_at) == (known.occurrence, known.opened_at)
    assert found.expires_at == at(9) + KEPT_FOR


def test_a_run_beside_that_is_gone_tells_its_letter_past_what_it_may_have_used() -> None:
    """And its row is later than any word of its own, earlier than the next redrive's."""
    job = state(definition=definition(retry={"max_attempts": 2}))
    row = {"key": KEY, "scheduled_time": at(1), "fires_at": at(2), "trigger": "redrive", "seq": 0}
    gone = BesideRun.model_validate({**row, "outcome": "scheduled", "name": names.run_name(KEY, 3)})
    job.beside = [gone]
    job_changes.lost_beside(job, gone, at(5))
    [errand] = job.errands
    assert isinstance(errand, TellDeadLetter)
    assert (errand.ended.outcome, errand.ended.next_attempt) == ("cancelled", 5)
    [told_row] = rows(job)
    assert sequence(4, 1, 9) < told_row.seq < sequence(5, 1, 1)


def test_a_lost_redrive_uses_up_all_attempts_it_may_have_made() -> None:
    found = opened(status="redriving", redrives=1)
    dead_letter.lost(found)
    assert (found.status, found.letter.next_attempt) == ("open", 2 + 1)


def test_a_redrive_has_one_name_until_it_is_accepted() -> None:
    found = opened()
    actor = Actor(by="ann", at=NOON, operation="their-own")
    first, again_ = (dead_letter.redrive_order(found, actor, force=False) for _ in range(2))
    assert first.name == again_.name == dead_letter.redrive_request(first).actor.operation
    dead_letter.redriving(found)
    assert dead_letter.redrive_order(found, actor, force=False).name != first.name


# -- errands ---------------------------------------------------------------------------------------


def incident(number: int) -> Errand:
    return TellIncident(
        word=IncidentWord(
            tenant="acme",
            kind="missed",
            subject=f"job-{number}",
            open=True,
            at=NOON + timedelta(seconds=number),
        )
    )


def test_beyond_their_bound_words_on_incidents_go_first() -> None:
    job = state()
    letter = OpenDeadLetter(letter=opened().letter)
    errands.add(job, letter, *(incident(number) for number in range(ERRANDS_MAX)))
    assert len(job.errands) == ERRANDS_MAX
    assert job.errands[:2] == [letter, incident(1)]


def test_a_letter_told_anew_takes_the_place_of_what_it_said_before() -> None:
    job = state()
    letter = opened().letter
    later = letter.model_copy(update={"next_attempt": 9})
    errands.add(job, OpenDeadLetter(letter=letter))
    errands.add(job, OpenDeadLetter(letter=later))
    assert [the_letter(job).next_attempt] == [9]


def test_large_letters_stay_within_what_a_payload_may_hold() -> None:
    """A batch holds one at least; of too many the oldest goes."""
    job = state()
    letter = opened().letter
    large = letter.definition.model_copy(update={"description": "x" * 150_000})
    for number in range(5):
        occurrence = letter.occurrence.model_copy(update={"key": f"{KEY}+b{number}"})
        errands.add(
            job,
            OpenDeadLetter(letter=letter.model_copy(update={"definition": large, "occurrence": occurrence})),
        )
    assert [key for _, key in told(job)] == [f"{KEY}+b{number}" for number in (2, 3, 4)]
    assert len(errands.batch(job.errands)) == 1
