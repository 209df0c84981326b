"""The transitions of a job's state, one function each; the job workflow only says when.

All of them change the state they are given. Time is an argument, and nothing waits.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from workflows.contracts.attempt import (
    NATIVE_RETRY,
    START_COUNTS_FOR,
    AttemptInput,
    AttemptReport,
    HeartbeatDetails,
)
from workflows.contracts.job import JobState, RunState, StopIntent
from workflows.contracts.planning import Plan, PlanInput
from workflows.contracts.records import AttemptOutcome, ExecutionRow, Outcome, Record
from workflows.domain import backfill, backlog, history, incidents, job_records, letters, overlap, stats
from workflows.domain.active import is_paused, is_planned, is_unserved, of_loop
from workflows.domain.job_sources import is_passed, leave_out, mark_served, put_back, settle_behind

CLOCK_SLACK = timedelta(minutes=1)
"""A clock this far behind the last served instant has been set back."""

# -- what an attempt is given ----------------------------------------------------------------------


def attempt_input(state: JobState, run: RunState) -> AttemptInput:
    behind = [due for due in state.plan if due.scheduled_time > run.occurrence.scheduled_time]
    first_chance = is_unserved(run)
    return AttemptInput(
        tenant=state.tenant,
        ref=state.ref,
        job=state.job,
        occurrence=run.occurrence,
        attempt=run.attempt,
        fires_at=run.fires_at,
        not_after=run.not_after if first_chance else None,
        definition=state.definition,
        revision=state.revision,
        first_attempt=run.first_attempt,
        first_started_at=run.started_at,
        first_lateness_ms=run.lateness_ms,
        deliveries=run.deliveries,
        reaps=run.reaps,
        run_number=run.run_number,
        stats=state.stats,
        next_fires_at=behind[0].fires_at if behind else None,
        hints=state.hints,
        records=backlog.carried(state.records) if state.storing else [],
        overrun=incidents.overrun(state, run, behind),
    )


# -- planning --------------------------------------------------------------------------------------


def plan_input(state: JobState, now: datetime) -> PlanInput:
    definition = state.definition
    return PlanInput(
        tenant=state.tenant,
        job=state.job,
        schedule=definition.schedule,
        spread=definition.spread,
        starts_at=definition.starts_at,
        ends_at=definition.ends_at,
        except_=definition.except_,
        catch_up=definition.catch_up,
        after=state.cursor,
        settled=[one for one in state.served if one > state.cursor] if state.runs_errands else [],
        now=now,
        passed_until=state.passed_until,
        late_until=state.late_until,
        blocked_since=state.blocked_since,
        blocked_until=state.blocked_until,
        overdue_first=overlap.overdue_first(state),
        queue=overlap.room(definition.concurrency),
        left_behind=state.left_behind,
        remaining=None if definition.max_runs is None else definition.max_runs - state.scheduled_runs,
    )


def adopt(state: JobState, plan: Plan, now: datetime) -> None:
    """Take over a plan made at ``now``, and record what it leaves out."""
    for left, stretch in zip(state.left_behind, plan.left_behind, strict=False):
        if stretch is not None:
            job_records.record_stretch(state, stretch, left.outcome, left.reason, now)
    state.left_behind = state.left_behind[len(plan.left_behind) :]  # a planner of 0.3.0 counts none
    if plan.passed is not None:
        job_records.record_stretch(state, plan.passed, "skipped", state.passed_reason, now)
    if plan.missed is not None:
        job_records.record_stretch(state, plan.missed, "missed", None, now)
    if plan.dropped is not None:
        why = overlap.reason(state.definition.concurrency)
        job_records.record_stretch(state, plan.dropped, "skipped", why, now)
    state.cursor = max(state.cursor, plan.cursor)
    state.skips = [instant for instant in state.skips if instant > state.cursor]
    state.plan = [due for due in plan.occurrences if due.scheduled_time not in state.served]
    if state.plan and state.runs_errands:
        settle_behind(state)
    # A skipped occurrence does not use up max_runs, so only an empty plan says that it is used up.
    state.plan_exhausted = plan.exhausted and (state.definition.max_runs is None or not plan.occurrences)
    # Never downwards: while workers of two releases plan in turn, the newer rule stands.
    state.planned_at, state.tzdata, state.hints = now, max(state.tzdata, plan.tzdata), plan.hints
    state.passed_until = state.late_until = None
    if plan.before_line:
        return
    state.line_is_up = overlap.keeps_line(state) and any(due.waited for due in state.plan)
    if state.line_is_up:
        return
    state.blocked_until = None
    if not any(due.waited for due in state.plan) or state.definition.concurrency.policy == "forbid":
        state.blocked_since = None


def clock_was_set_back(state: JobState, now: datetime) -> bool:
    """Whether the server's clock lies far behind what was served: then the job goes on from ``now``,
    and what it served under the wrong time is not served again."""
    if state.cursor - now <= CLOCK_SLACK:
        return False
    state.cursor = now
    drop_plan(state)
    return True


def drop_plan(state: JobState) -> None:
    state.plan, state.plan_exhausted = [], False


# -- what an attempt came back with ----------------------------------------------------------------


def learn(state: JobState, run: RunState, inp: AttemptInput, report: AttemptReport) -> None:
    """What every report tells, whatever the outcome."""
    if report.carried_stored:
        job_records.confirm(state, inp.records)
    if state.tzdata and report.tzdata > state.tzdata:
        drop_plan(state)
    if report.hints is not None:
        state.hints = report.hints
    run.deliveries, run.reaps = report.deliveries, report.reaps
    if report.fired:
        run.started_at, run.lateness_ms = report.started_at, report.lateness_ms
    incidents.leases_lost(state, run, report.ended_at)
    incidents.overran(run, inp, report.ended_at)


def returned(state: JobState, run: RunState, inp: AttemptInput, report: AttemptReport, stop: StopIntent,
             now: datetime) -> None:  # fmt: skip
    """A worker gave the run back: the same attempt is scheduled again, or decided again.

    ``stop``: what it was asked to do meanwhile, which it may have had no time to obey.
    """
    if stop.intent == "now":
        settle(state, run, inp, history.stopped(stop.reason), stop.reason, now)
    elif stop.intent == "if_held" and not report.fired:
        stopped_unfired(state, run, inp, stop, now)
    elif report.reason == "clock_behind" and can_be_planned_again(state, run):
        put_back(state, run, now)  # planned under a clock that has been set back since
        drop_plan(state)
    else:
        run.not_before = report.resume_at
        run.holdable = run.holdable and report.reason != "clock_ahead"
        if report.reason in ("turnstile", "worker_stopping") and report.ended_at >= run.fires_at:
            run.not_after = None  # it had its chance in time: what follows is a wait of our own making


def can_be_planned_again(state: JobState, run: RunState) -> bool:
    """Nobody fired it, and the planner can decide about its occurrence anew."""
    return is_unserved(run) and is_planned(run.occurrence.trigger) and not is_passed(state, run)


def late(state: JobState, run: RunState, now: datetime) -> None:
    """The first chance to fire came too late: the planner applies the catch-up policy."""
    if is_passed(state, run):
        leave_out(state, run, None, now)
        return
    put_back(state, run, now)
    drop_plan(state)
    state.late_until = run.occurrence.scheduled_time


def stopped_unfired(state: JobState, run: RunState, inp: AttemptInput, stop: StopIntent,
                    now: datetime) -> None:  # fmt: skip
    """A stop reached the run before any request of this attempt was written."""
    if _ends_with_its_job(state, run, stop):
        settle(state, run, inp, "dead_lettered", "deleted", now)
    elif stop.intent == "now":
        settle(state, run, inp, history.stopped(stop.reason), stop.reason, now)
    elif state.deleted:
        settle(state, run, inp, "cancelled", "deleted", now)
    elif run.attempt == run.first_attempt:
        put_back(state, run, now)
    elif state.pause is not None:
        settle(state, run, inp, "dead_lettered", "paused", now)
    # else: an edit came; the retry keeps its time, under the new definition


def _ends_with_its_job(state: JobState, run: RunState, stop: StopIntent) -> bool:
    """A deletion meets a retry: it has failed before, so it is not called cancelled, held or not."""
    asked = stop.intent == "now" and stop.reason != "deleted"
    return state.as_of_0_4 and state.deleted and run.attempt > run.first_attempt and not asked


def sent_in_silence(run: RunState, inp: AttemptInput, left: HeartbeatDetails | None, now: datetime,
                    lease: timedelta) -> None:  # fmt: skip
    """A stop met a holder that was dead, and had never said that it fires: it may have done so without.

    As the next holder would find (``activities.lost_holder``): a holder whose start counted as its fence
    may die between its write and its first word. One that said nothing at all began a lease ago.
    """
    if left is None:
        may_have_fired = now - lease >= inp.fires_at - START_COUNTS_FOR
    else:
        may_have_fired = left.phase == "held" and left.unfenced and now >= inp.fires_at
    if may_have_fired:
        run.deliveries += 1
        run.reaps += 1


def sent_unseen(run: RunState, inp: AttemptInput, stop: StopIntent, scheduled_at: datetime,
                now: datetime, lease: timedelta) -> None:  # fmt: skip
    """A stop met an attempt, scheduled then, that nobody had, and no word of an earlier holder came with it.

    After a lease's length that may be one between two holders, of which the first has fired. It counts as
    sent, so that nothing that reached the target is called unsent, and the next delivery has a new number:
    behind as many as there may have been, each of which fired no sooner than the lease before it was over.
    """
    may_have_fired = now >= inp.fires_at and now - scheduled_at >= lease
    if may_have_fired and (stop.intent == "if_held" or run.deliveries > 0):
        over = lease - START_COUNTS_FOR  # the least from a firing to the end of its lease
        since = now - max(inp.fires_at, scheduled_at) - over
        holders = 1 + max(since // (over + NATIVE_RETRY), 0)
        run.deliveries += min(holders, max(inp.definition.max_reaps - inp.reaps, 0) + 1)


def ended(state: JobState, run: RunState, inp: AttemptInput, report: AttemptReport, now: datetime, *,
          stopped: str | None = None) -> None:  # fmt: skip
    """The attempt has an outcome: a retry, or the end of the execution. ``stopped``: the reason, if it was
    to stop wherever it was and came back by itself before the stop reached it; then nothing follows."""
    served(state, run)
    verdict = history.verdict(inp, report)
    record = history.attempt_record(inp, report, verdict)
    if not report.stored:
        job_records.keep(state, [record])
    state.storing = report.stored
    if record.attempt is not None:
        letters.remember(run, record.attempt)
    if verdict.retry_at is None:
        finished(state, run, verdict.outcome, verdict.reason, report.ended_at, record.execution)
    elif stopped is not None:
        settle(state, run, inp, history.stopped(stopped), stopped, now)
    elif state.deleted or is_paused(state, now):
        settle(state, run, inp, "dead_lettered", "deleted" if state.deleted else "paused", now)
    else:
        run.attempt += 1
        run.fires_at, run.not_after, run.not_before, run.deliveries = verdict.retry_at, None, None, 0


def lease_lost(state: JobState, run: RunState, inp: AttemptInput, *, left: HeartbeatDetails | None,
               stopped: str | None, now: datetime) -> None:  # fmt: skip
    """The server gave up an attempt that had fired. ``left``: the last holder's details. ``stopped``:
    the reason, if it was to stop wherever it was; else the same attempt is scheduled again."""
    served(state, run)
    if left is not None:
        run.deliveries = max(run.deliveries, left.deliveries)
        run.reaps = max(run.reaps, left.reaps) + (left.phase == "fired")
        run.started_at = run.started_at or left.started_at
        run.lateness_ms = left.lateness_ms if run.lateness_ms is None else run.lateness_ms
    incidents.leases_lost(state, run, now)
    incidents.overran(run, inp, now)
    if stopped is not None or run.reaps > state.definition.max_reaps:
        _remember_lost(state, run, inp, left, stopped is not None, now)
    if stopped is not None:
        settle(state, run, inp, history.stopped(stopped), stopped, now)
    elif run.reaps > state.definition.max_reaps:
        settle(state, run, inp, "dead_lettered", "leases_lost", now)


def _remember_lost(state: JobState, run: RunState, inp: AttemptInput, left: HeartbeatDetails | None,
                   stopped: bool, now: datetime) -> None:  # fmt: skip
    """No holder of this attempt has reported, and none will: its row would say ``running`` for ever."""
    worker = left.worker if left is not None else ""
    outcome: AttemptOutcome = "cancelled" if stopped else "failed"
    attempt = history.lost_attempt(inp, outcome, deliveries=run.deliveries, worker=worker, at=now)
    letters.remember(run, attempt)
    job_records.keep(state, [Record(tenant=state.tenant, ref=state.ref, attempt=attempt)])


# -- the end of an execution -----------------------------------------------------------------------


def served(state: JobState, run: RunState) -> None:
    """Move the cursor: this occurrence has had its run, whatever becomes of it."""
    state.missed = None
    if state.definition.concurrency.policy == "forbid":
        state.blocked_since = None
    if is_planned(run.occurrence.trigger):
        mark_served(state, run.occurrence.scheduled_time)


def settle(state: JobState, run: RunState, inp: AttemptInput, outcome: Outcome, reason: str | None,
           now: datetime) -> None:  # fmt: skip
    """End an execution by the workflow's own word, over whatever the worker wrote."""
    served(state, run)
    record = history.settled_record(
        inp,
        outcome=outcome,
        reason=reason,
        started_at=run.started_at,
        ended_at=now,
    )
    job_records.keep(state, [record])
    finished(state, run, outcome, reason, now, record.execution)


def finished(state: JobState, run: RunState, outcome: Outcome, reason: str | None, ended_at: datetime,
             row: ExecutionRow | None) -> None:  # fmt: skip
    state.run = None
    if run.started_at is not None:
        state.last_run_ms = max((ended_at - run.started_at) // timedelta(milliseconds=1), 0)
    backfill.ended(state, run.backfill, outcome, ended_at)
    backfill.happened(state, run.occurrence.key, outcome, run.attempt, ended_at)
    if outcome not in ("cancelled", "replaced") or not is_unserved(run):
        state.stats = stats.after_run(state.stats, outcome, ended_at)
    if row is not None:
        state.last_run = history.last_run(row)
        letters.after_end(state, run, outcome, row)
    if run.started_at is not None or run.group_since is not None:
        overlap.settle(state, of_loop(run, ended_at), ended_at)
    if incidents.ended(state, run, outcome, reason, ended_at):
        job_records.publish(state)
