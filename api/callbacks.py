"""Callbacks: a target renews the lease of its run, or reports its end, by nothing but a token.

Every call is one word to Temporal, fenced by the task token, so any API process can take it, and the
same call may be sent again: what was done is recognised in the history and answered as it was.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio.client import (
    AsyncActivityCancelledError,
    AsyncActivityHandle,
    Client,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.service import RPCError, RPCStatusCode

from api.callback_fate import Fate, Found, fate_of
from api.clock import Clock
from api.connection import Connection
from api.overruns import Overruns
from api.problem_table import SOON
from api.problems import Kind, ProblemError
from infra.callback_token import CallbackTokens, NoCallbackToken
from infra.temporal.attempt_failure import attempt_failure
from infra.temporal.errors import SetupError
from workflows.contracts.attempt import AttemptReport
from workflows.contracts.base import rfc3339
from workflows.contracts.callback import CallbackClaims
from workflows.contracts.job import FiredSignal, JobView, StopIntent
from workflows.contracts.names import QUERY_STOP_INTENT, QUERY_VIEW, execution_id
from workflows.domain import callback

CALL = timedelta(seconds=3)
WITHIN_S = 5.0
ASK = timedelta(seconds=2)
LOOKS = 4
LOOK_AGAIN_S = 0.2
ERROR_MAX = 500

log = logging.getLogger(__name__)


class Callbacks:
    def __init__(
        self, connection: Connection, tokens: CallbackTokens | None, clock: Clock, overruns: Overruns
    ) -> None:
        """``tokens``: None where the installation's signing secret is not known here."""
        self._connection = connection
        self._tokens = tokens
        self._clock = clock
        self._overruns = overruns

    def claims(self, token: str) -> CallbackClaims:
        """What a token says. Raises 404 for one that is none of ours, 410 for one that is too old."""
        if self._tokens is None:
            raise ProblemError(
                Kind.NOT_FOUND, "This API cannot read callback tokens: it has no CARILLON_SIGNING_SECRET."
            )
        try:
            claims = self._tokens.open(token)
        except NoCallbackToken:
            raise ProblemError(
                Kind.NOT_FOUND,
                "This is no callback token of this installation. Use the URL in `Carillon-Callback` as it "
                "came with the delivery, with `/heartbeat`, `/complete` or `/fail` behind it.",
            ) from None
        if self._clock() >= claims.expires_at:
            raise ProblemError(
                Kind.GONE, f"The token expired at {rfc3339(claims.expires_at)}; the run ended long ago."
            )
        return claims

    async def heartbeat(self, claims: CallbackClaims) -> None:
        """Renew the lease. Raises 410 when the run is to stop, 409 when the token's right is over."""

        async def renew(activity: AsyncActivityHandle) -> None:
            await self._end_if_over(activity, claims)
            await self._beat(activity, claims)

        await self._serve(claims, renew)
        self._overruns.note(claims, self._clock())

    async def complete(self, claims: CallbackClaims, answer: str | None) -> None:
        """The run has succeeded. That counts over a stop that has not reached the target."""
        report = callback.succeeded(claims, answer, self._clock())

        async def end(activity: AsyncActivityHandle) -> None:
            await self._end_if_over(activity, claims)
            await activity.complete(report, rpc_timeout=CALL)

        await self._serve(claims, end, report)

    async def fail(
        self, claims: CallbackClaims, *, error: str, retryable: bool, retry_after_s: float | None
    ) -> None:
        """The run has failed; the job's policy decides on a retry, unless the run was to stop anyway."""
        report = callback.failed(
            claims,
            self._clock(),
            error=error[:ERROR_MAX],
            retryable=retryable,
            retry_after_s=retry_after_s,
        )

        async def end(activity: AsyncActivityHandle) -> None:
            await self._end_if_over(activity, claims)
            await self._beat(activity, claims)
            await activity.fail(attempt_failure(report), rpc_timeout=CALL)

        await self._serve(claims, end, report)

    # -- words to Temporal -------------------------------------------------------------------------

    async def _serve(
        self,
        claims: CallbackClaims,
        work: Callable[[AsyncActivityHandle], Awaitable[None]],
        said: AttemptReport | None = None,
    ) -> None:
        """Do the work with the activity behind the token, or answer why that cannot be. ``said``: the
        end that is being reported; one that was reported before is no refusal."""
        try:
            client = await self._connection.client()
            activity = client.get_async_activity_handle(task_token=base64.b64decode(claims.task_token))
            async with asyncio.timeout(WITHIN_S):
                try:
                    await work(activity)
                    return
                except RPCError as error:
                    if error.status is not RPCStatusCode.NOT_FOUND:
                        raise
            async with asyncio.timeout(WITHIN_S):
                found = await self._fate(client, claims)
                if found.report is None or said is None or not callback.is_repeat(claims, found.report, said):
                    raise await self._refusal(client, claims, found)
        except (SetupError, TimeoutError) as error:
            raise _away(error) from None
        except RPCError as error:
            if error.status is RPCStatusCode.INVALID_ARGUMENT:
                raise ProblemError(
                    Kind.NOT_FOUND, "Temporal does not know this token; it belongs to another namespace."
                ) from None
            raise _away(error) from None

    async def _beat(self, activity: AsyncActivityHandle, claims: CallbackClaims) -> None:
        """Raises 410 when the run is to stop wherever it is, and ends it: its target knows now."""
        try:
            await activity.heartbeat(claims.beat, rpc_timeout=CALL)
        except AsyncActivityCancelledError:
            intent = await self._intent(claims)
            if intent.intent == "now":
                reason = intent.reason or "stopped"
                await activity.complete(callback.cancelled(claims, self._clock(), reason), rpc_timeout=CALL)
                raise _was_cancelled(reason) from None

    async def _intent(self, claims: CallbackClaims) -> StopIntent:
        """What the stop means; without an answer the run goes on, and the next heartbeat asks again."""
        asked = FiredSignal(key=claims.key, attempt=claims.attempt)
        client = await self._connection.client()
        job = client.get_workflow_handle(claims.workflow_id)
        try:
            async with asyncio.timeout(ASK.total_seconds()):
                intent: StopIntent = await job.query(
                    QUERY_STOP_INTENT, asked, result_type=StopIntent, rpc_timeout=ASK
                )
                return intent
        except (RPCError, TimeoutError, WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
            log.warning("the job did not say what its stop means, the run goes on: %s", error)
            return StopIntent()

    async def _end_if_over(self, activity: AsyncActivityHandle, claims: CallbackClaims) -> None:
        now = self._clock()
        if not callback.is_over(claims, now):
            return
        report = callback.timed_out(claims, now)
        await activity.fail(attempt_failure(report), rpc_timeout=CALL)
        raise _has_timed_out(claims)

    # -- what became of it -------------------------------------------------------------------------

    async def _fate(self, client: Client, claims: CallbackClaims) -> Found:
        for _ in range(LOOKS):
            found = await fate_of(client, claims)
            if found.fate is not Fate.UNKNOWN:
                break
            await asyncio.sleep(LOOK_AGAIN_S)
        return found

    async def _refusal(self, client: Client, claims: CallbackClaims, found: Found) -> ProblemError:
        match found.fate:
            case Fate.TAKEN_OVER:
                return _stale(claims, "the same execution is delivered again, as its next delivery")
            case Fate.ENDED if found.report is not None:
                return _has_ended(claims, found.report)
            case Fate.LEASE_LOST:
                return await self._after_lease(client, claims)
            case Fate.CANCELLED:
                return _was_cancelled("")
            case Fate.UNKNOWN:
                return ProblemError(
                    Kind.BUSY, "The run ends at this moment; send the same call again.", headers=SOON
                )
            case _:
                return ProblemError(Kind.GONE, "The run is over, and its job has ended or forgotten it.")

    async def _after_lease(self, client: Client, claims: CallbackClaims) -> ProblemError:
        """The server gave the activity up; the job knows whether that was the end of the execution."""
        job = client.get_workflow_handle(claims.workflow_id)
        try:
            async with asyncio.timeout(ASK.total_seconds()):
                view = await job.query(QUERY_VIEW, result_type=JobView, rpc_timeout=ASK)
        except (RPCError, TimeoutError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
            return _stale(claims, "the job decides what becomes of the execution")
        last = view.last_run
        if last is None or last.key != claims.key:
            return _stale(claims, "the job decides what becomes of the execution")
        if last.outcome in ("cancelled", "replaced"):
            return _was_cancelled(last.reason or "")
        return _stale(claims, f"the execution has ended as `{last.outcome}`", outcome=last.outcome)


def _away(error: BaseException) -> ProblemError:
    log.warning("a callback was not served, Temporal does not answer: %s", error)
    return ProblemError(
        Kind.SCHEDULER_UNAVAILABLE,
        "Temporal does not answer. Send the same call again: nothing is lost, and nothing is done twice.",
        headers=SOON,
    )


def _has_timed_out(claims: CallbackClaims) -> ProblemError:
    return ProblemError(
        Kind.EXECUTION_ENDED,
        f"The time of this attempt ended at {rfc3339(claims.ends_at)}: `{claims.ends_by}` allows "
        f"{claims.timeout_s:g} s. It has been recorded as `timed_out`.",
        outcome="timed_out",
    )


def _was_cancelled(reason: str) -> ProblemError:
    why = f" ({reason})" if reason else ""
    return ProblemError(Kind.GONE, f"The run was cancelled{why}: stop working on it.", outcome="cancelled")


def _stale(claims: CallbackClaims, what: str, **extra: Any) -> ProblemError:
    return ProblemError(
        Kind.STALE_CALLBACK,
        f"The lease of delivery {claims.delivery} of `{execution_id(claims.key, claims.attempt)}` was lost; "
        f"{what}. Stop working on this one.",
        **extra,
    )


def _has_ended(claims: CallbackClaims, ended: AttemptReport) -> ProblemError:
    if ended.outcome == "cancelled":
        return _was_cancelled(ended.reason or "")
    if ended.deliveries != claims.delivery or ended.outcome in ("returned", "late"):
        return _stale(claims, f"delivery {ended.deliveries} has ended as `{ended.outcome}`")
    if ended.outcome == "timed_out" and callback.is_over(claims, ended.ended_at):
        return _has_timed_out(claims)
    return ProblemError(
        Kind.EXECUTION_ENDED,
        f"This attempt has ended already: `{ended.outcome}` at {rfc3339(ended.ended_at)}.",
        outcome=ended.outcome,
    )
