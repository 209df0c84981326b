"""The transitions of a dead letter, one function each; its workflow only says when.

All of them change the state they are given and count the change. Time is an argument.
"""

from __future__ import annotations

from datetime import datetime

from workflows.contracts import names
from workflows.contracts.actor import Actor
from workflows.contracts.base import rfc3339
from workflows.contracts.dead_letter import (
    ALIVE_LETTERS,
    KEPT_FOR,
    STORY_MAX,
    DeadLetter,
    DeadLetterState,
    LetterEnded,
    LetterRow,
    RedriveOrder,
)
from workflows.contracts.job import JobState, RedriveRequest, RunState
from workflows.contracts.records import AttemptRow, ExecutionRow


def opened(letter: DeadLetter) -> DeadLetterState:
    return DeadLetterState(letter=letter, expires_at=letter.failed_at + KEPT_FOR)


def is_alive(state: DeadLetterState) -> bool:
    return state.status in ALIVE_LETTERS


def is_news(known: DeadLetter, letter: DeadLetter) -> bool:
    """Whether ``letter`` tells of a later end than ``known``: an errand may be run twice, and late."""
    return letter.failed_at > known.failed_at


def failed_again(state: DeadLetterState, letter: DeadLetter) -> None:
    """A redrive, or a backfill, of it ended without success too: open, with the longer story."""
    if not is_news(state.letter, letter):
        return
    known = state.letter
    state.letter = letter.model_copy(
        update={
            "attempts": _story(known, letter.attempts),
            "occurrence": known.occurrence,
            "opened_at": known.opened_at if is_alive(state) else letter.opened_at,
            "next_attempt": max(known.next_attempt, letter.next_attempt),
        }
    )
    state.expires_at = letter.failed_at + KEPT_FOR
    _become(state, "open")


def ended(state: DeadLetterState, word: LetterEnded) -> None:
    """The word on an execution of its key; what a closed letter is told comes too late."""
    if not is_alive(state):
        return
    letter = state.letter
    told = _story(letter, word.attempts)
    next_attempt = max(letter.next_attempt, word.next_attempt)
    state.letter = letter.model_copy(update={"attempts": told, "next_attempt": next_attempt})
    match word.outcome:
        case "succeeded":
            _become(state, "redriven")
        case "evicted":
            _become(state, "evicted")
        case _:
            if state.status == "open":  # nobody knew of that redrive: the next one has another name
                state.redrives += 1
            _become(state, "open")


def _story(letter: DeadLetter, following: list[AttemptRow]) -> list[AttemptRow]:
    """The attempts that are known, and those of a run since: the last of them."""
    made = {attempt.attempt: attempt for attempt in (*letter.attempts, *following)}
    return [made[number] for number in sorted(made)][-STORY_MAX:]


def redriving(state: DeadLetterState) -> None:
    state.redrives += 1
    _become(state, "redriving")


def lost(state: DeadLetterState) -> None:
    """Nobody knows of its redrive any more: open again, past every attempt that one may have used."""
    letter = state.letter
    used = letter.definition.retry.max_attempts
    state.letter = letter.model_copy(update={"next_attempt": letter.next_attempt + used})
    _become(state, "open")


def discard(state: DeadLetterState) -> None:
    _become(state, "discarded")


def expire(state: DeadLetterState) -> None:
    _become(state, "expired")


def _become(state: DeadLetterState, status: str) -> None:
    state.status = status  # type: ignore[assignment]
    state.change += 1


# -- a redrive -------------------------------------------------------------------------------------


def redrive_order(state: DeadLetterState, actor: Actor, *, force: bool) -> RedriveOrder:
    return RedriveOrder(letter=state.letter, number=state.redrives + 1, force=force, actor=actor)


def redrive_request(order: RedriveOrder) -> RedriveRequest:
    """What the job is asked: the same key, from the next attempt on. The letter keeps the story so far."""
    letter = order.letter
    return RedriveRequest(
        occurrence=letter.occurrence.model_copy(update={"trigger": "redrive"}),
        attempt=letter.next_attempt,
        force=order.force,
        actor=order.actor.model_copy(update={"operation": order.name}),
    )


def execution(letter: DeadLetter, revision: int) -> ExecutionRow:
    """The execution that a redrive goes on with, as it is answered."""
    return letter.execution.model_copy(
        update={
            "trigger": "redrive",
            "outcome": "scheduled",
            "ended_at": None,
            "reason": None,
            "revision": revision,
        }
    )


def alone(order: RedriveOrder) -> JobState:
    """The state of a workflow of its own that redrives a letter of a deleted job, as that job was."""
    letter, at = order.letter, order.actor.at
    request = redrive_request(order)
    return JobState(
        tenant=letter.tenant,
        job=letter.job,
        ref=letter.ref,
        generation=names.job_of(letter.ref)[1],
        definition=letter.definition,
        revision=letter.revision,
        created_at=at,
        updated_at=at,
        cursor=at,
        plan_exhausted=True,
        hints=letter.hints,
        runs_errands=True,
        as_of_0_4=True,
        run=RunState(
            occurrence=request.occurrence,
            attempt=request.attempt,
            first_attempt=request.attempt,
            fires_at=at,
            forced=order.force,
        ),
    )


# -- what it looks like ----------------------------------------------------------------------------


def row(state: DeadLetterState, at: datetime) -> LetterRow:
    letter = state.letter
    last = letter.attempts[-1] if letter.attempts else None
    return LetterRow(
        tenant=letter.tenant,
        key=letter.occurrence.key,
        ref=letter.ref,
        job=letter.job,
        scheduled_time=letter.occurrence.scheduled_time,
        trigger=letter.occurrence.trigger,
        opened_at=letter.opened_at,
        failed_at=letter.failed_at,
        expires_at=state.expires_at,
        reason=letter.execution.reason,
        attempts=last.attempt if last is not None else 0,
        status_code=last.status_code if last is not None else None,
        error=last.error if last is not None else None,
        revision=letter.revision,
        status=state.status,
        redrives=state.redrives,
        change=state.change,
        changed_at=at,
    )


def describe(state: DeadLetterState) -> str:
    """Markdown for the Temporal UI."""
    letter = state.letter
    reason = f" ({letter.execution.reason})" if letter.execution.reason else ""
    lines = [
        f"**{state.status}**: `{letter.occurrence.key}`{reason}",
        f"opened {rfc3339(letter.opened_at)}, redriven {state.redrives} times, "
        f"kept until {rfc3339(state.expires_at)}",
    ]
    for attempt in letter.attempts:
        said = attempt.error or (attempt.status_code and f"status {attempt.status_code}") or ""
        lines.append(f"attempt {attempt.attempt}: {attempt.outcome} {said}".rstrip()[:300])
    return "\n\n".join(lines)
