"""Incidents: the word on one that reaches its workflow, the message to the tenant, and the row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from temporalio import activity
from temporalio.client import Client
from temporalio.common import Priority, WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from activities.alert_urls import AlertUrls
from activities.targets.delivery import Answer
from infra.database.errors import DatabaseError
from workflows.contracts.base import rfc3339
from workflows.contracts.incident import (
    INSTALLATION,
    OPEN_A_TENANT,
    Incident,
    IncidentWord,
    Notice,
    Notification,
)
from workflows.contracts.names import (
    INCIDENT_WORKFLOW,
    MAIN_QUEUE,
    NOTIFY_ACTIVITY,
    SIGNAL_INCIDENT,
    STORE_INCIDENTS_ACTIVITY,
    incident_workflow_id,
)
from workflows.contracts.search import attributes
from workflows.domain import incident_state

TELL_WITHIN = timedelta(seconds=5)
ANSWER_WITHIN = timedelta(seconds=10)
"""For one try of a message, from the look-up of the name to the end of the answer."""


async def tell(client: Client, word: IncidentWord) -> None:
    """Say that an incident is open, which opens it if it is not, or that it is over.

    Safe to repeat: what is said twice is one message still. That one is over which nobody has opened
    is nothing to do. Raises RPCError when the server is away.
    """
    workflow_id = incident_workflow_id(word.tenant, word.kind, word.subject)
    if not word.open:
        try:
            await client.get_workflow_handle(workflow_id).signal(
                SIGNAL_INCIDENT, word, rpc_timeout=TELL_WITHIN
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        return
    await client.start_workflow(
        INCIDENT_WORKFLOW,
        incident_state.begun(word),
        id=workflow_id,
        task_queue=MAIN_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal=SIGNAL_INCIDENT,
        start_signal_args=[word],
        priority=Priority(fairness_key=word.tenant),
        search_attributes=attributes(word.tenant, word.job, word.subject if word.job else None),
        static_summary=f"{word.kind}: {word.detail}"[:200],
        rpc_timeout=TELL_WITHIN,
    )


class Sender(Protocol):
    async def notify(
        self, url: str, body: Any, *, message_id: str, tenant: str, deadline: timedelta
    ) -> Answer: ...


class IncidentStore(Protocol):
    """The database; every call raises DatabaseError when it is away."""

    async def store(self, rows: Sequence[Incident]) -> None:
        """Write rows down, unless newer ones are there."""
        ...

    async def found(self, incident: Incident) -> tuple[Incident, int]:
        """Write it down; the newest row of it, and how many others of its tenant are open."""
        ...


class Incidents:
    """The activities of the incident workflow."""

    def __init__(
        self, sender: Sender, store: IncidentStore, urls: AlertUrls, told: Callable[[str, str], None]
    ) -> None:
        """``told``: counts messages by kind of incident and by what became of them."""
        self._sender = sender
        self._store = store
        self._urls = urls
        self._told = told

    @property
    def activities(self) -> tuple[Callable[..., Any], ...]:
        return (self.notify, self.store)

    @activity.defn(name=STORE_INCIDENTS_ACTIVITY)
    async def store(self, rows: list[Incident]) -> None:
        """Raises DatabaseError while the database is away: it is tried again."""
        await self._store.store(rows)

    @activity.defn(name=NOTIFY_ACTIVITY)
    async def notify(self, asked: Notification) -> Notice:
        """Send one message, and say what became of it. Raises NotDelivered: it is tried again."""
        notice = await self._notify(asked)
        self._told(asked.incident.kind, notice)
        return notice

    async def _notify(self, asked: Notification) -> Notice:
        incident = asked.incident
        if asked.message == "opened" and (known := await self._known(incident)) is not None:
            return known
        url = await self._urls.of(incident.tenant)
        if url is None:
            return "no_alert_url"
        answer = await self._sender.notify(
            url,
            payload(asked),
            message_id=message_id(asked),
            tenant=incident.tenant,
            deadline=ANSWER_WITHIN,
        )
        if answer.outcome == "succeeded":
            return "delivered"
        wait = answer.retry_after_s
        raise ApplicationError(
            f"the alert URL did not take the message: {answer.error}"[:500],
            type="NotDelivered",
            category=ApplicationErrorCategory.BENIGN,
            next_retry_delay=None if not wait else timedelta(seconds=wait),
        )

    async def _known(self, incident: Incident) -> Notice | None:
        """What the database says against telling of it; without the database nothing does."""
        try:
            row, others = await self._store.found(incident)
        except DatabaseError as error:
            activity.logger.warning("incident %s is told without the database: %s", incident.id, error)
            return None
        if row.change > incident.change and row.notice != "pending":
            return "repeated"
        return "over_limit" if others >= OPEN_A_TENANT else None


def message_id(asked: Notification) -> str:
    """The ``webhook-id``; the same at every try."""
    return asked.incident.id + ("-recovered" if asked.message == "recovered" else "")


def payload(asked: Notification) -> dict[str, Any]:
    """The body of a message: docs/incidents.md has its fields."""
    incident = asked.incident
    recovered_at = incident.recovered_at if asked.message == "recovered" else None
    return {
        "type": f"incident.{asked.message}",
        "id": incident.id,
        "tenant": None if incident.tenant == INSTALLATION else incident.tenant,
        "kind": incident.kind,
        "subject": incident.subject,
        "job": incident.job,
        "key": incident.key,
        "detail": incident.detail,
        "count": incident.count,
        "opened_at": rfc3339(incident.opened_at),
        "recovered_at": None if recovered_at is None else rfc3339(recovered_at),
    }
