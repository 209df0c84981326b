"""What a job, or a run beside it, does about dead letters when an execution has ended.

Who tells a letter of its end is the workflow that ran the execution; the bound on a job's open letters
is the job's own.
"""

from __future__ import annotations

from datetime import datetime

from workflows.contracts import names
from workflows.contracts.dead_letter import OPEN_A_JOB, STORY_MAX, DeadLetter, LetterEnded
from workflows.contracts.errands import OpenDeadLetter, TellDeadLetter
from workflows.contracts.job import BesideRun, JobState, RunEnded, RunState
from workflows.contracts.records import AttemptRow, ExecutionRow, Outcome
from workflows.domain import errands


def remember(run: RunState, attempt: AttemptRow) -> None:
    """An attempt has ended: part of the story, without the target's answer."""
    told = attempt.model_copy(update={"answer": None})
    run.story = [*(known for known in run.story if known.attempt != told.attempt), told][-STORY_MAX:]


def after_end(state: JobState, run: RunState, outcome: Outcome, row: ExecutionRow) -> None:
    """The execution of ``run`` has ended as ``row`` says."""
    if outcome == "dead_lettered":
        errands.add(state, OpenDeadLetter(letter=_letter(state, run, row)))
        _remember_open(state, row)
    elif _may_have_letter(state, run):
        _tell(state, run, row, outcome if outcome in ("succeeded", "replaced") else "cancelled")
    if outcome == "succeeded":
        _close_own(state, row.key, row.ended_at or row.fires_at)


def after_beside(state: JobState, end: RunEnded) -> None:
    """A run beside the job has ended, and has told its letter itself."""
    if end.last_run.outcome == "dead_lettered":
        at = end.ended_at
        fields = end.last_run.model_dump() | {"fires_at": end.last_run.scheduled_time, "ended_at": at}
        _remember_open(state, ExecutionRow(seq=0, **fields))
    elif end.last_run.outcome == "succeeded":
        _close_own(state, end.last_run.key, end.ended_at)


def lost_beside(state: JobState, row: BesideRun, used: int, now: datetime) -> None:
    """A run beside the job is gone without a word; ``used``: the last attempt that it may have made."""
    if row.trigger in ("redrive", "backfill"):
        word = LetterEnded(key=row.key, outcome="cancelled", at=now, next_attempt=used + 1)
        errands.add(state, TellDeadLetter(tenant=state.tenant, ended=word))


def closed(state: JobState, key: str) -> None:
    """A dead letter is not open any more."""
    state.open_letters = [known for known in state.open_letters if known != key]


def _remember_open(state: JobState, row: ExecutionRow) -> None:
    """A letter that is open already keeps its place; of too many, the oldest is closed."""
    if row.key not in state.open_letters:
        state.open_letters = [*state.open_letters, row.key]
    while len(state.open_letters) > OPEN_A_JOB:
        oldest, *state.open_letters = state.open_letters
        word = LetterEnded(key=oldest, outcome="evicted", at=row.ended_at or row.fires_at)
        errands.add(state, TellDeadLetter(tenant=state.tenant, ended=word))


def _close_own(state: JobState, key: str, at: datetime) -> None:
    """A rerun, or a backfill of all, has succeeded under a key of its own: so has its occurrence."""
    own = names.occurrence_key(key)
    if own != key and own in state.open_letters and state.as_of_0_4:
        word = LetterEnded(key=own, outcome="succeeded", at=at)
        errands.add(state, TellDeadLetter(tenant=state.tenant, ended=word))


def _may_have_letter(state: JobState, run: RunState) -> bool:
    """A redrive has one; a backfill of an occurrence that has been tried before may have one."""
    tried = run.first_attempt > 1 or run.occurrence.key in state.open_letters
    return run.occurrence.trigger == "redrive" or (run.occurrence.trigger == "backfill" and tried)


def _letter(state: JobState, run: RunState, row: ExecutionRow) -> DeadLetter:
    return DeadLetter(
        tenant=state.tenant,
        job=state.job,
        ref=state.ref,
        execution=row,
        occurrence=run.occurrence,
        definition=state.definition,
        revision=state.revision,
        attempts=run.story,
        next_attempt=_next_attempt(run),
        opened_at=row.ended_at or row.fires_at,
        hints=state.hints,
    )


def _next_attempt(run: RunState) -> int:
    """The one behind that which the execution ended with, sent or not: what is said of the end stands over
    whatever is told of the same attempt."""
    return run.attempt + 1


def _tell(state: JobState, run: RunState, row: ExecutionRow, outcome: str) -> None:
    word = LetterEnded.model_validate(
        {
            "key": run.occurrence.key,
            "outcome": outcome,
            "at": row.ended_at or row.fires_at,
            "next_attempt": _next_attempt(run),
            "attempts": run.story,
        }
    )
    errands.add(state, TellDeadLetter(tenant=state.tenant, ended=word))
