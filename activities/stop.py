"""What a run that has fired does when it is asked to stop: it asks the job what was meant."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from temporalio import activity
from temporalio.service import RPCError

from activities.hold import Hold
from workflows.contracts.job import FiredSignal, StopIntent
from workflows.contracts.names import QUERY_STOP_INTENT, SIGNAL_FIRED

ASK_TIMEOUT = timedelta(seconds=2)
ASK_AGAIN = 2.0
"""Seconds: a later, stronger wish (``replace``, a cancellation) is learned by asking only."""

log = logging.getLogger(__name__)


async def ask_to_stop(hold: Hold) -> None:
    """Ask by query, again each two seconds; without an answer the run goes on.

    The job is told once that the run has fired, which is what a pause or an edit waits for.
    """
    info = activity.info()
    workflow_id = info.workflow_id or ""
    job = activity.client().get_workflow_handle(workflow_id)
    asked = FiredSignal(key=hold.inp.occurrence.key, attempt=hold.inp.attempt)
    told = False
    while True:
        try:
            intent = await job.query(
                QUERY_STOP_INTENT, asked, result_type=StopIntent, rpc_timeout=ASK_TIMEOUT
            )
            if intent.intent == "now":
                hold.cancel(intent.reason or "stopped")
                return
            if not told:
                await job.signal(SIGNAL_FIRED, asked, rpc_timeout=ASK_TIMEOUT)
                told = True
        except RPCError as error:
            log.warning("the job did not say what its stop means, the run goes on: %s", error)
        await asyncio.sleep(min(hold.beat_interval, ASK_AGAIN))
