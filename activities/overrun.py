"""An overrun, told while it lasts: a run that is still active when it has been in the way for too long.

The job counts what it skips only when the run ends, which for a run that hangs may be a day. So the one
who has the run tells the incident at the instant that the job has named.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from math import inf

from temporalio.service import RPCError

from activities.clock import Clock, sleep_until
from infra.telemetry import Telemetry
from workflows.contracts.attempt import AttemptInput, Overrun
from workflows.contracts.incident import IncidentWord

Tell = Callable[[IncidentWord], Awaitable[None]]
"""Safe to repeat; raises RPCError when the server is away."""
TRIES = 20
"""The job tells of it too, at the end of the run."""
AGAIN_S = 5.0
LOOK_AGAIN_S = 1.0

log = logging.getLogger(__name__)


async def watch(
    overrun: Overrun,
    inp: AttemptInput,
    clock: Clock,
    telemetry: Telemetry,
    tell: Tell,
    *,
    started_at: Callable[[], datetime | None],
) -> None:
    """Wait for the instant, count the overrun and tell of it, if the run is in the way by then.

    Cancelled when the run has ended; nothing that goes wrong here reaches the run.
    """
    await sleep_until(clock, overrun.at, inf)
    while started_at() is None:  # it is on its way to the target still
        await clock.sleep(LOOK_AGAIN_S)
    if not overrun.concerns(started_at()):
        return
    telemetry.overran()
    word = overrun.word(inp.job, inp.occurrence.key)
    for _ in range(TRIES):
        try:
            await tell(word)
        except (RPCError, TimeoutError) as error:
            log.warning("the incident of an overrun was not told, once more: %s", error)
            await clock.sleep(AGAIN_S)
        except Exception:
            log.exception("an overrun cannot be told of")
            return
        else:
            return
    log.error("the incident of the overrun of %s is left to the end of the run", inp.occurrence.key)
