"""The activity that runs a job's errands: what other workflows have to be told.

Each may have been run before: whoever is told sees by the content what is new.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import assert_never

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from activities.dead_letters import open_letter, tell_letter
from activities.groups import leave_group
from activities.incidents import tell
from workflows.contracts.errands import Errand, ErrandsRefused, RefusedErrand
from workflows.contracts.failures import ERRANDS_REFUSED
from workflows.contracts.names import ERRANDS_ACTIVITY
from workflows.domain import errands as rules

TRIED_FOR = timedelta(seconds=15)
"""Errands that come later in the batch are left for the next; one takes some seconds at most."""
TRIES_OF_OLD = 60
"""About an hour. So often the server tries a batch again for a job of 0.2.0, which cannot take in what is
left of one; by then its own worker is one of today."""

_AWAY = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.CANCELLED,  # so the SDK says that no answer came in time
    }
)


class Errands:
    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=ERRANDS_ACTIVITY)
    async def run(self, errands: list[Errand]) -> None:
        """Each of them, in order, whatever becomes of the others.

        Raises ``ErrandsRefused`` with what is left. Only those told to the same receiver wait for each other.
        """
        left = await self._left_of(errands)
        if left.refused or left.untried:
            raise ApplicationError(
                f"{len(left.refused)} of {len(errands)} errands were refused",
                left,
                type=ERRANDS_REFUSED,
                non_retryable=activity.info().attempt >= TRIES_OF_OLD,
                category=ApplicationErrorCategory.BENIGN,
            ) from None

    async def _left_of(self, errands: list[Errand]) -> ErrandsRefused:
        clock = asyncio.get_running_loop().time
        until = clock() + TRIED_FOR.total_seconds()
        refused: list[RefusedErrand] = []
        untried: list[int] = []
        receivers: set[tuple[str, ...]] = set()
        for place, errand in enumerate(errands):
            receiver = rules.receiver(errand)
            if receiver in receivers or (place > 0 and clock() > until):
                untried.append(place)
                receivers.add(receiver)
                continue
            try:
                await self._run(errand)
            except Exception as error:  # whatever it is, the others do not wait for it
                reason = f"{type(error).__name__}: {error}"[: rules.REASON_MAX]
                activity.logger.warning("refused, and put off: %s: %s", rules.subject(errand), reason)
                refused.append(RefusedErrand(place=place, reason=reason, away=_is_away(error)))
                receivers.add(receiver)
        return ErrandsRefused(refused=refused, untried=untried)

    async def _run(self, errand: Errand) -> None:
        match errand.kind:
            case "open_dead_letter":
                await open_letter(self._client, errand.letter)
            case "tell_dead_letter":
                await tell_letter(self._client, errand.ended)
            case "tell_incident":
                await tell(self._client, errand.word)
            case "leave_group":
                await leave_group(self._client, errand.tenant, errand.leave)
            case _:
                assert_never(errand)


def _is_away(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or (isinstance(error, RPCError) and error.status in _AWAY)
