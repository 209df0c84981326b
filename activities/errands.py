"""The activity that runs a job's errands: what other workflows have to be told.

Each may have been run before: whoever is told sees by the content what is new.
"""

from __future__ import annotations

from typing import assert_never

from temporalio import activity
from temporalio.client import Client

from activities.dead_letters import open_letter, tell_letter
from activities.groups import leave_group
from activities.incidents import tell
from workflows.contracts.errands import Errand
from workflows.contracts.names import ERRANDS_ACTIVITY


class Errands:
    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=ERRANDS_ACTIVITY)
    async def run(self, errands: list[Errand]) -> None:
        """All of them, in order. Raises RPCError when the server is away: the job tries again."""
        for errand in errands:
            await self._run(errand)

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
