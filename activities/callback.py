"""Callbacks, as the worker sees them: what a delivery carries, and how its run is handed over.

A target that answers 202 has taken the run over. From then on nobody here waits for it: the activity is
completed asynchronously, its lease goes on as its heartbeat time-out, and the API renews and ends it by
the task token in the callback's own token.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from datetime import datetime, timedelta

from temporalio import activity
from temporalio.service import RPCError

from activities.fence import Fences, Passed
from infra.callback_token import CallbackTokens
from infra.settings import Settings
from workflows.contracts.attempt import AttemptInput, HeartbeatDetails
from workflows.contracts.callback import REPEATS_FOR, CallbackClaims
from workflows.contracts.job import FiredSignal
from workflows.contracts.names import SIGNAL_FIRED

TELL_WITHIN = timedelta(seconds=2)
SAY_AGAIN_S = 0.3
NO_PUBLIC_URL = (
    "this worker has no CARILLON_PUBLIC_URL, so it cannot tell the target of a job with completion "
    "`callback` where to report; nothing was sent"
)

log = logging.getLogger(__name__)


def claims_of(
    inp: AttemptInput, info: activity.Info, beat: HeartbeatDetails, *, left: timedelta, tzdata: str
) -> CallbackClaims:
    """The right to the delivery that is about to be sent. ``left``: of ``max_duration``, at ``beat.at``."""
    timeout = inp.definition.timeout
    ends_at = beat.at + min(left, timeout)
    beat = beat.model_copy(update={"ends_at": ends_at})
    return CallbackClaims(
        task_token=base64.b64encode(info.task_token).decode(),
        workflow_id=info.workflow_id or "",
        run_id=info.workflow_run_id or "",
        activity_id=info.activity_id,
        tenant=inp.tenant,
        job=inp.job,
        key=inp.occurrence.key,
        attempt=inp.attempt,
        beat=beat,
        sent_at=beat.at,
        ends_at=ends_at,
        ends_by="max_duration" if left <= timeout else "timeout",
        timeout_s=min(left, timeout).total_seconds(),
        expires_at=ends_at + REPEATS_FOR,
        overrun=inp.overrun if inp.overrun and inp.overrun.concerns(beat.started_at) else None,
        tzdata=tzdata,
    )


class Callbacks:
    """What the callbacks of a worker process share."""

    def __init__(self, public_url: str, tokens: CallbackTokens) -> None:
        self._base = public_url.rstrip("/") + "/v1/callbacks/"
        self._tokens = tokens

    @classmethod
    def of(cls, settings: Settings) -> Callbacks | None:
        """None where no public URL is set: then jobs with callbacks cannot be delivered."""
        if not settings.public_url:
            return None
        return cls(settings.public_url, CallbackTokens(settings.signing_secret.get_secret_value()))

    def url(self, claims: CallbackClaims) -> str:
        """Up to the token; the target adds ``/heartbeat``, ``/complete`` or ``/fail``."""
        return self._base + self._tokens.seal(claims)

    async def hand_over(self, claims: CallbackClaims, fences: Fences) -> None:
        """Renew the lease once more with what the API will renew it with, and tell the job that the run
        has fired, so that a pause need not wait to say so. Bounded; nothing depends on its success."""
        passed, _ = await asyncio.gather(self._last_word(claims, fences), self._tell(claims))
        if passed is Passed.GONE:
            log.info("%s attempt %d was ended before its 202 was read", claims.key, claims.attempt)

    async def _last_word(self, claims: CallbackClaims, fences: Fences) -> Passed:
        """Said twice: a beat that was on its way when the 202 came may reach the server after the first,
        and does not tell when the attempt ends."""
        passed = await fences.pass_with(claims.beat)
        if passed in (Passed.YES, Passed.UNKNOWN):
            await asyncio.sleep(SAY_AGAIN_S)
            await fences.pass_with(claims.beat)
        return passed

    async def _tell(self, claims: CallbackClaims) -> None:
        job = activity.client().get_workflow_handle(claims.workflow_id)
        fired = FiredSignal(key=claims.key, attempt=claims.attempt)
        try:
            async with asyncio.timeout(TELL_WITHIN.total_seconds()):
                await job.signal(SIGNAL_FIRED, fired, rpc_timeout=TELL_WITHIN)
        except (RPCError, TimeoutError) as error:
            log.warning("the job was not told that %s is with its target: %s", claims.key, error)


def begun_at(beat: HeartbeatDetails, fires_at: datetime) -> HeartbeatDetails:
    """``beat`` of a first delivery: its send at ``beat.at`` is the execution's first firing."""
    if beat.started_at is not None:
        return beat
    late = max(0, round((beat.at - fires_at).total_seconds() * 1000))
    return beat.model_copy(update={"started_at": beat.at, "lateness_ms": late})
