"""Redrives and reruns that a job has accepted: each is done once, and no two reruns share a key."""

from __future__ import annotations

from workflows.contracts.attempt import Occurrence
from workflows.contracts.job import RECENT_REQUESTS, AnsweredRequest, JobState, RedriveRequest
from workflows.contracts.names import rerun_key, rerun_number, rerun_of


def answered(state: JobState, request: RedriveRequest) -> str | None:
    """The key that this call was answered with before, perhaps in another history of the job."""
    name = _name(request)
    return next((known.key for known in state.requests if known.id == name), None)


def occurrence_of(state: JobState, request: RedriveRequest) -> Occurrence:
    """What is to be run. The caller numbers a rerun by what it knows; another may have come before it."""
    occurrence = request.occurrence
    if occurrence.trigger != "rerun" or occurrence.key not in state.reruns:
        return occurrence
    of = rerun_of(occurrence.key)
    last = max(rerun_number(key) for key in state.reruns if rerun_of(key) == of)
    return occurrence.model_copy(update={"key": rerun_key(of, last + 1)})


def remember(state: JobState, request: RedriveRequest, key: str) -> None:
    if request.actor.operation:
        known = AnsweredRequest(id=_name(request), key=key)
        state.requests = [*state.requests[1 - RECENT_REQUESTS :], known]
    if request.occurrence.trigger == "rerun":
        state.reruns = [*state.reruns[1 - RECENT_REQUESTS :], key]


def forget(state: JobState, request: RedriveRequest, key: str) -> None:
    """It could not be begun after all."""
    state.requests = [known for known in state.requests if known.id != _name(request)]
    state.reruns = [known for known in state.reruns if known != key]


def _name(request: RedriveRequest) -> str:
    """Apart from the names of triggers, which hold no slash."""
    return f"{request.occurrence.trigger}/{request.actor.operation}"
