"""Overruns of runs that are with their targets: told at a heartbeat, where no worker is left to do it."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from datetime import datetime

from prometheus_client import Counter
from temporalio.service import RPCError

from activities.incidents import tell
from api.connection import Connection
from infra.temporal.errors import SetupError
from workflows.contracts.callback import CallbackClaims
from workflows.contracts.incident import IncidentWord

TELL_WITHIN_S = 10.0
TELLING_MAX = 100
KNOWN_MAX = 10_000
OVERRUNS = Counter(
    "carillon_api_overruns_total", "Runs with their targets that had been in the way for too long."
)

log = logging.getLogger(__name__)


class Overruns:
    """Each is told once a process; what another one tells as well is one message still."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: OrderedDict[str, None] = OrderedDict()
        """Runs that have been told of, oldest first."""
        self._telling: set[asyncio.Task[None]] = set()

    def note(self, claims: CallbackClaims, now: datetime) -> None:
        """The run is active at ``now``. Nobody waits for what is told of it."""
        run, overrun = claims.task_token, claims.overrun
        if overrun is None or now < overrun.at or run in self._known or len(self._telling) >= TELLING_MAX:
            return
        self._known[run] = None
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        OVERRUNS.inc()
        task = asyncio.create_task(self._tell(overrun.word(claims.job, claims.key), run))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def close(self) -> None:
        """Break off what is being told."""
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)

    async def _tell(self, word: IncidentWord, run: str) -> None:
        try:
            async with asyncio.timeout(TELL_WITHIN_S):
                await tell(await self._connection.client(), word)
        except (SetupError, RPCError, TimeoutError) as error:
            self._known.pop(run, None)
            log.warning("the incident of an overrun is told at the next heartbeat: %s", error)
