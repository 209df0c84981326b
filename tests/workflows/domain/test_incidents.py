"""What a job tells of, and when it says that it is over: each kind opens once and recovers once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.workflows.domain.states import (
    again,
    at,
    begun,
    begun_by_hand,
    comes_back,
    definition,
    planned,
    report,
    state,
)
from workflows.contracts.attempt import HeartbeatDetails
from workflows.contracts.errands import ERRANDS_MAX
from workflows.contracts.incident import FORGOTTEN_AFTER, IncidentWord, OpenIncident
from workflows.contracts.job import BesideRun, JobState, RunEnded
from workflows.contracts.planning import Plan, Stretch
from workflows.contracts.records import Pause
from workflows.domain import incidents, job_changes, job_records, job_sources, job_state

ONCE = {"max_attempts": 1}


def job(*, cursor: float = 0, **fields: Any) -> JobState:
    """Every minute, one attempt each; unless said otherwise an hour is planned."""
    return state(
        range(int(cursor) + 1, int(cursor) + 61), cursor=cursor, definition=definition(retry=ONCE, **fields)
    )


def words(found: JobState) -> list[IncidentWord]:
    return [errand.word for errand in found.errands if errand.kind == "tell_incident"]


def said(found: JobState) -> list[tuple[str, bool]]:
    return [(word.kind, word.open) for word in words(found)]


def runs(found: JobState, minute: float, outcome: str = "succeeded", *, ends: float | None = None) -> None:
    """The next occurrence runs at ``minute`` and comes back with ``outcome``."""
    begun(found)
    comes_back(found, report(outcome, fired=minute, ended=minute + 0.1 if ends is None else ends))


def fails(found: JobState) -> None:
    runs(found, 1, "failed")


def is_missed(found: JobState) -> None:
    stretch = Stretch(count=480, first=at(-480), last=at(-1))
    job_state.adopt(found, Plan(occurrences=planned(1, 2, 3), missed=stretch, cursor=at(0)), at(0.5))


def loses_its_lease(found: JobState) -> None:
    begun(found)
    comes_back(found, report("cancelled", fired=1, ended=1.5, reaps=2))


def loses_its_lease_for_good(found: JobState) -> None:
    run, inp = begun(found)
    left = HeartbeatDetails(
        native_attempt=1, phase="fired", deliveries=1, reaps=0, started_at=at(1), at=at(1)
    )
    job_state.lease_lost(found, run, inp, left=left, stopped="asked", now=at(1.5))


def skips_three(found: JobState) -> None:
    runs(found, 1, ends=4.5)


def has_no_success(found: JobState) -> None:
    assert incidents.no_success_deadline(found) == at(0)
    incidents.no_success(found, at(0))


KINDS: dict[str, tuple[dict[str, Any], Callable[[JobState], None], list[str]]] = {
    "a dead letter": ({}, fails, ["dead_letter"]),
    "a missed stretch": ({}, is_missed, ["missed"]),
    "a reap told by a report": ({}, loses_its_lease, ["lease_lost"]),
    "a reap told by the server": ({}, loses_its_lease_for_good, ["lease_lost"]),
    "skips": ({"alerts": {"consecutive_skips": 3}}, skips_three, ["consecutive_skips"]),
    "failures": (
        {"alerts": {"consecutive_failures": 1}},
        fails,
        ["dead_letter", "consecutive_failures"],
    ),
    "a pause": ({"pause_after": 1}, fails, ["dead_letter", "paused_after_failures"]),
    "no success": ({"alerts": {"no_success_for": 60}}, has_no_success, ["no_success"]),
}


@pytest.mark.parametrize(("fields", "happens", "kinds"), KINDS.values(), ids=KINDS)
def test_each_kind_opens_once_and_is_over_with_the_next_success(
    fields: dict[str, Any], happens: Callable[[JobState], None], kinds: list[str]
) -> None:
    found = job(**fields)
    happens(found)
    assert said(found) == [(kind, True) for kind in kinds]
    assert [one.kind for one in found.incidents] == kinds
    assert {word.subject for word in words(found)} == {"report"}
    found.errands = []
    if found.pause is not None:
        job_changes.end_pause(found, at(8))
    begun_by_hand(found, 9)
    comes_back(found, report(fired=9, ended=9.1))
    assert sorted(said(found)) == sorted((kind, False) for kind in kinds)
    assert found.incidents == []
    begun_by_hand(found, 10, "again")
    comes_back(found, report(fired=10, ended=10.1))
    assert len(words(found)) == len(kinds)


QUIET: dict[str, tuple[dict[str, Any], Callable[[JobState], None]]] = {
    "a success": ({}, lambda found: runs(found, 1)),
    "a run that is cancelled": ({"pause_after": 1}, lambda found: runs(found, 1, "cancelled")),
    "a retry": ({"retry": {"max_attempts": 2}}, fails),
    "two skips": ({}, lambda found: runs(found, 1, ends=3.5)),
    "skips that nobody wants to hear of": ({"alerts": {"consecutive_skips": None}}, skips_three),
    "what an edit went past": (
        {},
        lambda found: job_records.record_stretch(
            found, Stretch(count=1, first=at(1), last=at(1)), "missed", "edited", at(1)
        ),
    ),
    "what fell due in a pause": (
        {},
        lambda found: job_records.record_stretch(
            found, Stretch(count=9, first=at(1), last=at(9)), "skipped", "paused", at(9)
        ),
    ),
}


@pytest.mark.parametrize(("fields", "happens"), QUIET.values(), ids=QUIET)
def test_nobody_is_told_of(fields: dict[str, Any], happens: Callable[[JobState], None]) -> None:
    found = job()
    found.definition = definition(**{"retry": ONCE, **fields})
    happens(found)
    assert said(found) == []
    assert found.incidents == []


@pytest.mark.parametrize("reason", ["paused", "deleted"])
def test_a_dead_letter_that_was_asked_for_is_no_news(reason: str) -> None:
    found = job(pause_after=1, alerts={"consecutive_failures": 1})
    run, inp = begun(found)
    job_state.settle(found, run, inp, "dead_lettered", reason, at(1))
    assert said(found) == []


def test_further_dead_letters_are_counted_where_they_are_told() -> None:
    """Each is a word of its own, later than the one before; the failures in a row are told once."""
    found = job(alerts={"consecutive_failures": 2})
    for minute in (1, 2, 3):
        runs(found, minute, "failed")
    assert [kind for kind, _ in said(found)] == ["dead_letter"] * 2 + ["consecutive_failures", "dead_letter"]
    instants = [word.at for word in words(found)]
    assert instants == sorted(set(instants))


def test_words_are_told_apart_although_clocks_of_workers_differ() -> None:
    found = job()
    runs(found, 1, "failed", ends=1.2)
    runs(found, 2, ends=1.1)
    opened, over = words(found)
    assert (opened.open, over.open) == (True, False)
    assert over.at > opened.at


def test_skips_in_a_row_end_with_a_run_that_skips_nothing() -> None:
    found = job(alerts={"consecutive_skips": 3})
    runs(found, 1, ends=3.5)
    assert (found.consecutive_skips, said(found)) == (2, [])
    runs(found, 4, ends=5.5)
    assert found.consecutive_skips == 3
    assert said(found) == [("consecutive_skips", True)]
    runs(found, 6, ends=7.5)
    assert len(words(found)) == 1
    runs(found, 8)
    assert said(found)[1:] == [("consecutive_skips", False)]
    assert found.consecutive_skips == found.skips_at_last_end == 0


# -- pause_after -----------------------------------------------------------------------------------


def test_a_job_pauses_after_so_many_failures_in_a_row() -> None:
    """Its row is told as at any pause, and a resume grants it as many again."""
    found = job(pause_after=3)
    for minute in (1, 2):
        runs(found, minute, "failed")
    assert found.pause is None
    runs(found, 3, "failed")
    assert found.pause == Pause(
        since=at(3.1), reason="3 executions in a row ended without success", by="carillon"
    )
    rows = [record.job for record in found.records if record.job is not None]
    assert [(row.status, row.change) for row in rows] == [("paused", 2)]
    job_changes.end_pause(found, at(5))
    assert said(found)[-1] == ("paused_after_failures", False)
    found.plan = planned(6, 7, 8, 9)
    for minute in (6, 7):
        runs(found, minute, "failed")
    assert found.pause is None
    runs(found, 8, "failed")
    assert found.pause is not None


def test_a_job_that_runs_no_more_does_not_pause() -> None:
    found = state([1], plan_exhausted=True, definition=definition(retry=ONCE, pause_after=1))
    fails(found)
    assert found.pause is None


# -- beside the loop -------------------------------------------------------------------------------


def ends_beside(found: JobState, outcome: str, minute: float) -> JobState:
    """A forced run ends with ``outcome``; its own state is returned."""
    alone = job_sources.alone(found)
    begun_by_hand(alone, minute, f"at-{minute}")
    run, _ = again(alone)
    job_sources.set_beside(run)
    found.beside = [BesideRun(**job_sources.beside_row(found, run).model_dump())]
    comes_back(alone, report(outcome, fired=minute, ended=minute + 0.1))
    assert alone.last_run is not None
    end = RunEnded(last_run=alone.last_run, ended_at=at(minute + 0.1), incidents=alone.incidents)
    job_changes.ended_beside(found, end)
    return alone


def test_a_run_beside_the_loop_tells_itself_and_the_job_says_when_it_is_over() -> None:
    found = job(pause_after=1, alerts={"consecutive_failures": 1})
    alone = ends_beside(found, "failed", 1)
    assert said(alone) == [("dead_letter", True)]
    assert alone.pause is None
    assert said(found) == [("consecutive_failures", True), ("paused_after_failures", True)]
    assert found.pause is not None
    found.errands = []
    ends_beside(found, "succeeded", 2)
    assert sorted(said(found)) == [("consecutive_failures", False), ("dead_letter", False)]
    assert [one.kind for one in found.incidents] == ["paused_after_failures"], "it is paused still"


# -- no success for a time -------------------------------------------------------------------------


def watched(**fields: Any) -> JobState:
    return state(definition=definition(alerts={"no_success_for": 600}), created_at=at(0), **fields)


def test_time_without_success_counts_from_the_latest_of_what_may_begin_it() -> None:
    found = watched()
    assert incidents.no_success_deadline(found) == at(10)
    runs(found, 1)
    assert incidents.no_success_deadline(found) == at(11.1)
    found.pause = Pause(since=at(2))
    assert incidents.no_success_deadline(found) is None
    job_changes.end_pause(found, at(20))
    assert incidents.no_success_deadline(found) == at(30)
    found.completed_at = at(21)
    assert incidents.no_success_deadline(found) is None


def test_an_edit_that_sets_the_alert_begins_its_time() -> None:
    found = state(created_at=at(-9999))
    assert incidents.no_success_deadline(found) is None
    job_changes.edit(found, definition(alerts={"no_success_for": 600}), at(3), calling=False)
    assert incidents.no_success_deadline(found) == at(13)
    job_changes.edit(found, definition(alerts={"no_success_for": 300}), at(9), calling=False)
    assert incidents.no_success_deadline(found) == at(8)


def test_what_was_forgotten_is_told_again() -> None:
    """Nobody knows any more of an incident that has been open for 30 days."""
    found = watched()
    incidents.no_success(found, at(10))
    again_at = incidents.no_success_deadline(found)
    assert again_at is not None
    assert again_at > at(10) + FORGOTTEN_AFTER
    incidents.no_success(found, at(11))
    assert len(words(found)) == 1
    incidents.no_success(found, again_at)
    assert len(words(found)) == 2


# -- overruns --------------------------------------------------------------------------------------


OVERRUNS: dict[str, tuple[dict[str, Any], dict[str, Any], datetime | None]] = {
    "the third occurrence behind it": ({}, {}, at(4)),
    "one was skipped before": ({}, {"consecutive_skips": 1}, at(3)),
    "too many were skipped before": ({}, {"consecutive_skips": 7}, at(2)),
    "told already": (
        {},
        {"consecutive_skips": 3, "incidents": [OpenIncident(kind="consecutive_skips", since=at(0))]},
        None,
    ),
    "nobody wants to hear of it": ({"alerts": {"consecutive_skips": None}}, {}, None),
    "under another policy they wait": ({"concurrency": {"policy": "queue"}}, {}, None),
    "more than is planned": ({"alerts": {"consecutive_skips": 9}}, {}, None),
    "longer than it may run": ({"max_duration": 60}, {}, None),
}


@pytest.mark.parametrize(("fields", "past", "instant"), OVERRUNS.values(), ids=OVERRUNS)
def test_an_overrun_is_told_when_that_many_are_skipped(
    fields: dict[str, Any], past: dict[str, Any], instant: datetime | None
) -> None:
    found = state([1, 2, 3, 4, 5], definition=definition(**fields), **past)
    _, inp = begun(found)
    assert (None if inp.overrun is None else inp.overrun.at) == instant
    found = state([1, 2, 3, 4, 5], definition=definition(**fields), **past)
    late = job_sources.begin_planned(found, found.plan[0], at(7))
    assert job_state.attempt_input(found, late).overrun is None, "what falls due waits for a catch-up"
    if inp.overrun is not None:
        assert not inp.overrun.concerns(at(2.1)), "the next one was due before, so it is not skipped"
        word = inp.overrun.word(inp.job, inp.occurrence.key)
        assert (word.kind, word.at, word.subject) == ("consecutive_skips", instant, "report")
        assert (word.key, word.open) == (inp.occurrence.key, True)


@pytest.mark.parametrize(
    ("fired", "minutes", "expected"),
    [(1, 4.5, [True]), (1, 1.5, []), (1, 4, [False]), (2.5, 4.5, [])],
    ids=["the job says so too", "it ended before", "nothing was skipped after all",
         "the next one was due before it started"],
)  # fmt: skip
def test_what_a_worker_told_while_it_lasted_is_settled_when_it_ends(
    fired: float, minutes: float, expected: list[bool]
) -> None:
    """An overrun of which the job knows nothing would stay open for ever."""
    found = job(alerts={"consecutive_skips": 3})
    run, _ = begun(found)
    if expected == [False]:
        found.plan = planned(9)  # an edit came meanwhile
        run.overran = True
    comes_back(found, report(fired=fired, ended=minutes))
    assert [word.open for word in words(found)] == expected


# -- bounds ----------------------------------------------------------------------------------------


def test_the_oldest_word_goes_when_too_many_wait() -> None:
    found = job()
    for _ in range(ERRANDS_MAX + 5):
        is_missed(found)
    assert len(found.errands) == ERRANDS_MAX
    assert words(found)[0].at == at(0.5) + 5 * incidents.INSTANT
    assert words(found)[-1].at == found.told_at


def test_a_deleted_job_closes_what_it_opened_and_opens_nothing() -> None:
    found = job()
    fails(found)
    found.deleted = True
    runs(found, 2, "failed")
    incidents.gone(found, at(3))
    assert said(found) == [("dead_letter", True), ("dead_letter", False)]
    assert words(found)[-1].detail == "the job was deleted"
