"""Whose server answers: an address can come to be that of another installation while a process runs.

Whoever stops one ``carillon up`` and starts another gives it the same default port, and a process that had
joined the first one connects again to whatever listens there. The namespace's id tells them apart, also where
its name and all else is the same.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from infra.settings import Settings
from infra.temporal.errors import SetupError

LOOK_EVERY = timedelta(seconds=5)
"""How soon a process ends whose server is another's. Until then it does nothing for it: tasks are known by
their token, and calls go through ``own_server``."""
_ANSWER_WITHIN = timedelta(seconds=5)


class Home:
    """The namespace that a process belongs to."""

    def __init__(self, client: Client, namespace_id: str) -> None:
        self._client = client
        self._namespace_id = namespace_id

    def gave(self, task_token: bytes) -> bool:
        """Whether the task is certainly of our namespace, whose id the server writes into its tokens. False
        says nothing: the token of a local activity is made by the worker, and names none."""
        return self._namespace_id.encode() in task_token

    async def look(self) -> None:
        """Raises SetupError (``foreign_server``) in another's namespace, RPCError where nobody answers."""
        self.compare(await namespace_id(self._client))

    def compare(self, found: str) -> None:
        """With the id that the server has told. Raises SetupError as :meth:`look` does."""
        if found != self._namespace_id:
            address = self._client.service_client.config.target_host
            raise SetupError(
                f"the Temporal server at {address} is not that of this installation, but another's "
                f"(namespace id {found} instead of {self._namespace_id}): start this installation on a "
                "port of its own, and this process again",
                code="foreign_server",
            )

    async def watch(self) -> None:
        """Looks for good, each five seconds. Raises SetupError, as :meth:`look` does."""
        while True:
            await self.confirm()
            await asyncio.sleep(LOOK_EVERY.total_seconds())

    async def confirm(self) -> None:
        """Returns as soon as a server has answered and is ours. Raises SetupError, as :meth:`look` does."""
        while True:
            try:
                return await self.look()
            except RPCError:  # nobody answers, and the next who does may be another's
                await asyncio.sleep(LOOK_EVERY.total_seconds())


def home_of(client: Client, settings: Settings) -> Home | None:
    """None where no id is known: a cluster that many share is not asked all the time by each of its workers,
    and no other comes to its address."""
    known = settings.temporal_namespace_id
    return None if known is None else Home(client, known)


async def namespace_id(client: Client) -> str:
    """Made with the namespace, and never the same in two servers."""
    found = await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=client.namespace), timeout=_ANSWER_WITHIN
    )
    return found.namespace_info.id
