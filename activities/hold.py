"""One holder's part in one attempt: hold, fence, turnstile, fire, lease (docs/decisions/0002).

The order is fixed. A cancel that arrives before the request is written always stops it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from temporalio import activity

from activities.callback import NO_PUBLIC_URL, begun_at, claims_of
from activities.clock import RunClock
from activities.due import Ended, Wait
from activities.fence import Passed
from activities.lease import Lease
from activities.lost_holder import inherit
from activities.targets.delivery import Answer, Delivery
from infra.callback_token import redact
from workflows.contracts.attempt import START_COUNTS_FOR, AttemptInput, AttemptReport, HeartbeatDetails
from workflows.contracts.base import rfc3339
from workflows.contracts.callback import CallbackClaims
from workflows.contracts.definition import RESPONSE_MAX
from workflows.contracts.names import execution_id
from workflows.domain import callback, history
from workflows.domain.look_ahead import fraction

if TYPE_CHECKING:
    from activities.attempt import Places

TURNSTILE_WAIT = timedelta(seconds=1)
"""A held run still at the turnstile this long after it was due goes to the queue of due runs."""
REAP_SPREAD = 4.0
"""From the second redelivery on a run waits a hashed 0 to 4 s, so that poison jobs part company."""
FENCE_AGAIN = 0.2
FENCE_STALLED = 0.5
"""A fence that took so many seconds met a server that stood still, or one with a long line before it."""
TURNSTILE_AGAIN = 0.25

log = logging.getLogger(__name__)


class Sender(Protocol):
    async def send(
        self, delivery: Delivery, *, deadline: timedelta, before_write: Callable[[], None]
    ) -> Answer: ...


class _StaleFence(Exception):
    """The fence is too old to fire behind: the process stood still, or the connection took long."""


class Hold:
    """Holds a run until it is due and fires it; :attr:`ended` becomes its report."""

    def __init__(self, inp: AttemptInput, info: activity.Info, places: Places) -> None:
        self.inp = inp
        self.fired = False
        """By this holder: a request may have been written."""
        self.lost = False
        """Another worker has the run now, or nobody: nothing of it is ours to report."""
        self.handed_over: CallbackClaims | None = None
        """The target has taken the run over, with these."""
        self._places = places
        self._clock = clock = RunClock(places.clock, places.offset, info.started_time)
        self._info = info
        self._wait = Wait(inp, clock, places.hold_limit)
        self._lease = Lease(inp, info, places, clock, self._wait.time)
        self._stop: tuple[str, str] | None = None
        inherited = inherit(inp, info)
        self.deliveries, self.reaps = inherited.deliveries, inherited.reaps
        self.started_at, self.lateness_ms = inherited.started_at, inherited.lateness_ms
        self._over = inherited.over
        if inherited.reaped:
            places.telemetry.reaped()
        self._tried_at: datetime | None = None
        self._fired_at: datetime | None = None
        self._claims: CallbackClaims | None = None
        self._beating: asyncio.Task[None] | None = None
        self.ended: asyncio.Task[AttemptReport]

    # -- from outside ------------------------------------------------------------------------------

    @property
    def beat_interval(self) -> float:
        return self._lease.interval

    def start(self) -> None:
        self.ended = asyncio.create_task(self._run())
        self._beating = asyncio.create_task(self._lease.keep(lambda: self._details("held")))

    def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        self.ended.cancel()

    def cancel(self, reason: str) -> None:
        """Stop the run wherever it is; a request on its way is broken off."""
        self._break_off("cancelled", reason)

    def lose(self) -> None:
        """The server says that the run is not ours any more."""
        self.lost = True
        self.cancel("lease_lost")

    async def may_record_end(self) -> bool:
        """Whether a row of the run's end may be written before the server has taken the report.

        Not for a run that is lost, nor for one that may be: the process stood still for longer than its
        lease allows, and the server does not say at once that the run is ours. Not for one with a callback
        either, whose end may have been reported by the target. If the report is taken, the job keeps the row.
        """
        if self.lost or self._by_callback:
            return False
        self.lost = not await self._lease.is_sure(self._details("held"))
        return not self.lost

    def give_back(self, reason: str) -> None:
        """Return the run to the job, which schedules the same attempt again."""
        self._break_off("returned", reason)

    def worker_stops(self, at: datetime) -> None:
        """The worker goes on until ``at``: what is not due by then is given back."""
        if not self.fired and self.inp.fires_at > at:
            self.give_back("worker_stopping")

    def _break_off(self, outcome: str, reason: str) -> None:
        if self._stop is None:
            self._stop = (outcome, reason)
        if hasattr(self, "ended"):
            self.ended.cancel()

    # -- the run -----------------------------------------------------------------------------------

    async def _run(self) -> AttemptReport:
        places = self._places
        places.telemetry.held(+1)
        try:
            self._end_what_is_over()
            if self._stop is not None:
                raise asyncio.CancelledError
            self._refuse_poison()
            answer = await self._held_and_fired()
            if (
                self._by_callback
                and answer.status_code == callback.ACCEPTED
                and answer.outcome != "timed_out"
            ):
                self.handed_over = self._claims
            return self._report_of(answer)
        except Ended as end:
            return self._report(end.outcome, **end.fields)
        except asyncio.CancelledError:
            outcome, reason = self._stop or ("returned", "worker_stopping")
            return self._report(outcome, reason=reason)
        except Exception as error:
            log.exception("attempt %s broke", self._execution_id)
            return self._report(
                "failed", error=f"internal: {type(error).__name__}: {error}"[:500], retryable=True
            )
        finally:
            places.telemetry.held(-1)

    def _end_what_is_over(self) -> None:
        """The target that had the run has used up its time, and never said so: nothing is sent again."""
        if (over := self._over) is None or over.ends_at is None:
            return
        final = self._time_left() <= timedelta(0)
        raise Ended(
            "timed_out",
            fired_at=over.at,
            status_code=callback.ACCEPTED,
            error=callback.no_end((over.ends_at - over.at).total_seconds()),
            retryable=not final,
            reason="max_duration" if final else None,
            worker=over.worker,
        )

    def _refuse_poison(self) -> None:
        if self.reaps > self.inp.definition.max_reaps:
            error = f"lease lost {self.reaps} times: every worker that ran this was lost"
            raise Ended("failed", reason="leases_lost", error=error)

    async def _held_and_fired(self) -> Answer:
        places, clock = self._places, self._clock
        self._wait.refuse_wrong_clock(places.offset, self._info.started_time)
        places.fences.held += 1
        try:
            await self._sleep_and_fence()
        finally:
            places.fences.held -= 1
        if self.reaps > 1:
            await clock.sleep(REAP_SPREAD * fraction("reap", self._execution_id, str(self.reaps)))
        return await self._through_turnstile()

    async def _sleep_and_fence(self) -> None:
        wait, fires_at = self._wait, self.inp.fires_at
        if wait.time > START_COUNTS_FOR:
            self._lease.fence_at = self._places.fences.at(fires_at, wait.time)
            await wait.sleep_until(self._lease.fence_at)
            wait.refuse_late(self.deliveries)
            await self._pass_fence()
            if wait.is_over:
                wait.refuse_clock_set_ahead()
                return  # the server kept it waiting, which makes no run late
        await wait.sleep_until(fires_at)
        wait.refuse_late(self.deliveries)

    async def _through_turnstile(self) -> Answer:
        """Wait for a place; a run that was held does not wait long, for others can fire it."""
        places, inp = self._places, self.inp
        while True:
            try:
                async with asyncio.timeout(self._turnstile_patience()) as waiting:
                    async with places.turnstile.place(
                        inp.tenant,
                        weight=inp.hints.weight,
                        priority=inp.definition.priority,
                        due=inp.occurrence.fires_at,
                    ):
                        waiting.reschedule(None)
                        places.telemetry.firing(+1)
                        try:
                            return await self._fire()
                        finally:
                            places.telemetry.firing(-1)
            except TimeoutError:
                if not waiting.expired():
                    raise
                if places.returns.take(self._clock.elapsed()):
                    raise Ended("returned", reason="turnstile") from None

    def _turnstile_patience(self) -> float | None:
        if self._wait.time <= timedelta(0):
            return None
        waited = (self._clock.server_now() - self.inp.fires_at).total_seconds()
        return max(TURNSTILE_WAIT.total_seconds() - waited, TURNSTILE_AGAIN)

    async def _fire(self) -> Answer:
        inp, clock = self.inp, self._clock
        if self._by_callback and self._places.callbacks is None:
            self._tried_at = clock.server_now()
            return Answer(outcome="failed", error=NO_PUBLIC_URL)
        while True:
            if not self._lease.fence_holds():
                await self._pass_fence()
            self._tried_at = clock.server_now()
            left = self._time_left()
            if left <= timedelta(0):
                return Answer(outcome="timed_out", error="max_duration is used up", error_kind="timeout")
            try:
                return await self._places.sender.send(
                    self._delivery(left),
                    deadline=min(left, inp.definition.timeout, RESPONSE_MAX),
                    before_write=self._firing,
                )
            except _StaleFence:
                log.info("the fence of %s became stale before the request was written", self._execution_id)

    def _firing(self) -> None:
        """Called immediately before the first byte of the request can reach the socket."""
        if self._stop is not None:
            raise asyncio.CancelledError
        if not self._lease.fence_holds():
            raise _StaleFence
        now = self._clock.server_now()
        self.fired = True
        self._fired_at = now
        self.deliveries += 1
        if self.started_at is None:
            self.started_at = now
            late = now - self.inp.occurrence.fires_at
            self.lateness_ms = max(0, round(late.total_seconds() * 1000))
        self._places.telemetry.fired((now - self.inp.fires_at).total_seconds())
        self._lease.say_fired(self._details("fired"))
        self._places.recorder.offer(
            [
                history.running_record(
                    self.inp,
                    delivery=self.deliveries,
                    started_at=self.started_at,
                    at=now,
                    lateness_ms=self.lateness_ms,
                    worker=self._places.worker,
                )
            ]
        )

    def _time_left(self) -> timedelta:
        """What is left of ``max_duration``, which counts from the first firing of the execution."""
        if self.started_at is None:
            return self.inp.definition.max_duration
        return self.started_at + self.inp.definition.max_duration - self._clock.server_now()

    # -- fence and lease ---------------------------------------------------------------------------

    async def _pass_fence(self) -> None:
        """Ask until the server answers; it may take the run away, and then nothing is written.

        A server that stood still goes through what waited for it in any order, so a beat that said held
        may come after the fence: then the fence is passed once more, to have the last word.
        """
        stalled = confirmed = False
        while True:
            begun = self._clock.elapsed()
            passed = await self._lease.pass_fence(self._details("fired", deliveries=self.deliveries + 1))
            stalled = stalled or passed is Passed.UNKNOWN or self._clock.elapsed() - begun > FENCE_STALLED
            if passed is Passed.YES:
                if confirmed or not stalled:
                    return
                confirmed = True
            elif passed is not Passed.UNKNOWN:
                self._places.telemetry.fence_refused()
                self.lost = passed is Passed.GONE
                raise Ended("cancelled", reason="stopped")
            await self._clock.sleep(FENCE_AGAIN)

    def _details(self, phase: str, *, deliveries: int | None = None) -> HeartbeatDetails:
        return HeartbeatDetails(
            native_attempt=self._info.attempt,
            phase="fired" if phase == "fired" else "held",
            deliveries=self.deliveries if deliveries is None else deliveries,
            reaps=self.reaps,
            started_at=self.started_at,
            lateness_ms=self.lateness_ms,
            worker=self._places.worker,
            at=self._clock.server_now(),
            unfenced=self._info.attempt == 1 and self._wait.time <= START_COUNTS_FOR,
        )

    # -- what is sent and what is reported ---------------------------------------------------------

    @property
    def _execution_id(self) -> str:
        return execution_id(self.inp.occurrence.key, self.inp.attempt)

    @property
    def _by_callback(self) -> bool:
        return self.inp.definition.completion == "callback"

    def _callback(self, left: timedelta) -> str | None:
        """The URL for this very send, if the job has one; ``left`` of ``max_duration``."""
        callbacks = self._places.callbacks
        if not self._by_callback or callbacks is None:
            return None
        beat = begun_at(self._details("fired", deliveries=self.deliveries + 1), self.inp.occurrence.fires_at)
        self._claims = claims_of(self.inp, self._info, beat, left=left, tzdata=self._places.tzdata)
        return callbacks.url(self._claims)

    def _delivery(self, left: timedelta) -> Delivery:
        inp = self.inp
        own = inp.occurrence.body
        return Delivery(
            tenant=inp.tenant,
            job=inp.job,
            key=inp.occurrence.key,
            execution_id=self._execution_id,
            attempt=inp.attempt,
            delivery=self.deliveries + 1,
            scheduled_time=rfc3339(inp.occurrence.scheduled_time),
            trigger=inp.occurrence.trigger,
            target=inp.definition.target,
            body=inp.definition.target.body if own is None else own.value,
            callback=self._callback(left),
        )

    def _report_of(self, answer: Answer) -> AttemptReport:
        if self.started_at is None:
            self.started_at = self._tried_at  # no connection came about, but the attempt is used
        timed_out = answer.outcome == "timed_out" and self._time_left() <= timedelta(0)
        return self._report(
            answer.outcome,
            status_code=answer.status_code,
            error=_told(answer),
            answer=redact(answer.answer) if self._by_callback and answer.answer else answer.answer,
            retryable=answer.retryable and not timed_out,
            retry_after_s=answer.retry_after_s,
            reason="max_duration" if timed_out else None,
        )

    def _report(self, outcome: str, **more: object) -> AttemptReport:
        return AttemptReport.model_validate(
            {
                "outcome": outcome,
                "fired": self.deliveries > 0,
                "deliveries": self.deliveries,
                "reaps": self.reaps,
                "started_at": self.started_at,
                "fired_at": self._fired_at or self._tried_at,
                "lateness_ms": self.lateness_ms,
                "ended_at": self._clock.server_now(),
                "worker": self._places.worker,
                "tzdata": self._places.tzdata,
                **more,
            }
        )


def _told(answer: Answer) -> str | None:
    """The error, its kind (``dns``, ``blocked``, ``tls``, …) before it where no status tells it."""
    if answer.error_kind in (None, "status", "redirect"):
        return answer.error
    return f"{answer.error_kind}: {answer.error}"
