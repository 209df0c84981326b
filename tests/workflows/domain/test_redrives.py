"""A redrive or rerun that is asked for twice is done once, and two reruns never share a key."""

from __future__ import annotations

from tests.workflows.domain.states import at, state
from workflows.contracts.actor import Actor
from workflows.contracts.attempt import Occurrence
from workflows.contracts.job import RECENT_REQUESTS, JobState, RedriveRequest
from workflows.domain import redrives

KEY = "acme/report:2026-12-01T12:01:00Z"


def rerun(operation: str, number: int = 1) -> RedriveRequest:
    occurrence = Occurrence(key=f"{KEY}+r{number}", trigger="rerun", scheduled_time=at(1), fires_at=at(9))
    return RedriveRequest(occurrence=occurrence, actor=Actor(at=at(9), operation=operation))


def accepted(job: JobState, request: RedriveRequest) -> str:
    key = redrives.occurrence_of(job, request).key
    redrives.remember(job, request, key)
    return key


def test_two_that_took_the_same_number_get_one_each() -> None:
    """And a repeat is answered with its own."""
    job = state()
    keys = [accepted(job, rerun(operation)) for operation in ("a", "b")]
    assert keys == [f"{KEY}+r1", f"{KEY}+r2"]
    assert [redrives.answered(job, rerun(one, 7)) for one in ("a", "b", "c")] == [*keys, None]


def test_one_that_could_not_be_begun_leaves_its_number() -> None:
    job = state()
    redrives.forget(job, rerun("a"), accepted(job, rerun("a")))
    assert redrives.answered(job, rerun("a")) is None
    assert accepted(job, rerun("b")) == f"{KEY}+r1"


def test_a_redrive_keeps_its_key_and_what_is_remembered_is_bounded() -> None:
    job = state()
    occurrence = Occurrence(key=KEY, trigger="redrive", scheduled_time=at(1), fires_at=at(1))
    for number in range(RECENT_REQUESTS + 5):
        request = RedriveRequest(
            occurrence=occurrence, attempt=2, actor=Actor(at=at(9), operation=f"redrive-{number}")
        )
        assert accepted(job, request) == KEY
    assert redrives.answered(job, request) == KEY
    assert (len(job.requests), job.reruns) == (RECENT_REQUESTS, [])
