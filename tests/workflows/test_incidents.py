"""Incidents from their first word to their recovery, with a real receiver that verifies signatures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from standardwebhooks import Webhook
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowHandle

from activities.incidents import tell
from infra.settings import Settings
from infra.signing import tenant_signing_secret
from tests.fleet import TENANT, Fleet, fresh
from tests.sink import Sink
from tests.workflows.asking import answers
from workflows.contracts import names
from workflows.contracts.incident import OPEN_A_TENANT, Incident, IncidentWord
from workflows.domain import incident_state

NOW = datetime.now(UTC).replace(microsecond=0)
ALERTS = "/alerts"


@pytest.fixture
async def alerted(temporal_client: Client, temporal_settings: Settings, sink: Sink) -> AsyncIterator[Fleet]:
    settings = temporal_settings.model_copy(
        update={"alert_url": sink.url(ALERTS), "max_cached_workflows": 1000}
    )
    fleet = await Fleet(temporal_client, settings).start()
    yield fleet
    await fleet.stop()


def word(subject: str, second: int = 0, *, opens: bool = True, **fields: Any) -> IncidentWord:
    return IncidentWord.model_validate(
        {
            "tenant": TENANT,
            "kind": "dead_letter",
            "subject": subject,
            "job": subject,
            "open": opens,
            "detail": f"{'open' if opens else 'over'} at {second}",
            "at": NOW + timedelta(seconds=second),
            **fields,
        }
    )


def messages(sink: Sink, fleet: Fleet, subject: str) -> list[dict[str, Any]]:
    """What the receiver was told of one subject, each with its ``webhook-id``; all of it is signed."""
    secret = tenant_signing_secret(fleet.settings.signing_secret.get_secret_value(), TENANT)
    found = []
    for arrival in sink.at(ALERTS):
        Webhook(secret).verify(arrival.body, arrival.headers)
        body = json.loads(arrival.body)
        if body["subject"] == subject:
            found.append({**body, "webhook-id": arrival.headers["webhook-id"]})
    return found


async def row(fleet: Fleet, subject: str, enough: Callable[[Incident], bool], within: float = 60) -> Incident:
    async with asyncio.timeout(within):
        while not (rows := fleet.incidents.of(subject)) or not enough(rows[-1]):
            await asyncio.sleep(0.05)
    return rows[-1]


async def test_an_incident_is_one_message_and_its_recovery_another(alerted: Fleet, sink: Sink) -> None:
    """However often it is said, and although the receiver fails at first."""
    job = fresh("told")
    answers(sink, ALERTS, 500)
    await tell(alerted.client, word(job))
    await tell(alerted.client, word(job))
    first = await row(alerted, job, lambda found: found.notice == "delivered")
    await tell(alerted.client, word(job, 5, key="acme/x:1"))
    await tell(alerted.client, word(job, 9, opens=False))
    last = await row(alerted, job, lambda found: found.recovery_notice == "delivered")
    assert (first.count, last.count, last.detail) == (1, 2, "over at 9")
    told = messages(sink, alerted, job)
    assert [(one["type"], one["webhook-id"]) for one in told] == [
        ("incident.opened", first.id),
        ("incident.opened", first.id),
        ("incident.recovered", f"{first.id}-recovered"),
    ]
    assert told[0] == told[1] == {
        "type": "incident.opened",
        "id": first.id,
        "webhook-id": first.id,
        "tenant": TENANT,
        "kind": "dead_letter",
        "subject": job,
        "job": job,
        "key": None,
        "detail": "open at 0",
        "count": 1,
        "opened_at": NOW.isoformat().replace("+00:00", "Z"),
        "recovered_at": None,
    }  # fmt: skip
    assert (told[2]["count"], told[2]["key"]) == (2, "acme/x:1")
    assert told[2]["recovered_at"] == (NOW + timedelta(seconds=9)).isoformat().replace("+00:00", "Z")


async def test_a_message_that_was_tried_before_is_not_reworded(alerted: Fleet, sink: Sink) -> None:
    """A history that has grown long goes on with the message it was at, whatever was heard since."""
    job = fresh("reworded")
    state = incident_state.begun(word(job))
    tried = incident_state.notification(state, "opened")
    incident_state.hear(state, word(job, 5))
    assert incident_state.notification(state, "opened") == tried
    await alerted.client.start_workflow(
        names.INCIDENT_WORKFLOW, state, id=f"incident/{TENANT}/dead_letter/{job}", task_queue=names.MAIN_QUEUE
    )
    await row(alerted, job, lambda found: found.notice == "delivered")
    await tell(alerted.client, word(job, 9, opens=False))
    await row(alerted, job, lambda found: found.recovery_notice == "delivered")
    told = messages(sink, alerted, job)
    assert [(one["type"], one["count"], one["detail"]) for one in told] == [
        ("incident.opened", 1, "open at 0"),
        ("incident.recovered", 2, "over at 9"),
    ]


async def test_its_page_says_where_it_stands(alerted: Fleet) -> None:
    """And not for ever that its row has to be written."""
    job = fresh("page")
    await tell(alerted.client, word(job))
    handle = alerted.client.get_workflow_handle(f"incident/{TENANT}/dead_letter/{job}")
    async with asyncio.timeout(20):
        while (page := await details(handle)) is None or "waits" in page or "message: delivered" not in page:
            await asyncio.sleep(0.05)
    assert page.startswith("**dead_letter**, open: open at 0\n\nsince "), page
    assert "said once" in page


async def details(handle: WorkflowHandle[Any, Any]) -> str:
    metadata: WorkflowMetadata = await handle.query(
        "__temporal_workflow_metadata", result_type=WorkflowMetadata
    )
    return str(metadata.current_details)


async def test_what_recovers_before_it_could_be_told_is_told_in_order(alerted: Fleet, sink: Sink) -> None:
    job = fresh("brief")
    answers(sink, ALERTS, 503)
    await tell(alerted.client, word(job))
    await sink.wait_for(ALERTS, 1)
    await tell(alerted.client, word(job, 1, opens=False))
    await tell(alerted.client, word(job, 2))
    await tell(alerted.client, word(job, 3, opens=False))
    await row(alerted, job, lambda found: found.recovery_notice == "delivered")
    types = [one["type"] for one in messages(sink, alerted, job)]
    assert types == ["incident.opened", "incident.opened", "incident.recovered"]


async def test_a_word_that_comes_again_after_the_end_is_not_told_again(alerted: Fleet, sink: Sink) -> None:
    """Nor is the recovery of what was never opened; what opens later is told."""
    job = fresh("again")
    await tell(alerted.client, word(job, opens=False))
    await tell(alerted.client, word(job))
    await tell(alerted.client, word(job, 1, opens=False))
    await row(alerted, job, lambda found: found.recovery_notice == "delivered")
    handle = alerted.client.get_workflow_handle(f"incident/{TENANT}/dead_letter/{job}")
    await handle.result()
    await tell(alerted.client, word(job))
    await handle.result()
    assert [one["type"] for one in messages(sink, alerted, job)] == ["incident.opened", "incident.recovered"]
    await tell(alerted.client, word(job, 7))
    await row(alerted, job, lambda found: found.opened_at > NOW and found.notice == "delivered")
    assert len(alerted.incidents.of(job)) == 2


async def test_the_database_is_in_nobodys_way(alerted: Fleet, sink: Sink) -> None:
    """The message goes out without it, and the row follows when it is back."""
    job = fresh("rowless")
    alerted.incidents.away = True
    await tell(alerted.client, word(job))
    await sink.wait_for(ALERTS, 1)
    await tell(alerted.client, word(job, 1, opens=False))
    await sink.wait_for(ALERTS, 2)
    assert alerted.incidents.of(job) == []
    alerted.incidents.away = False
    kept = await row(alerted, job, lambda found: found.recovery_notice == "delivered")
    assert kept.closed_at is not None


@pytest.mark.parametrize(
    ("url", "others", "notice"),
    [
        ("", 0, "no_alert_url"),
        ("sink", OPEN_A_TENANT, "over_limit"),
        ("sink", OPEN_A_TENANT - 1, "delivered"),
    ],
    ids=["no alert URL", "too many are open", "the last that is told"],
)
async def test_an_incident_that_is_not_told_says_why(
    url: str, others: int, notice: str, temporal_client: Client, temporal_settings: Settings, sink: Sink
) -> None:
    """And nothing is said of its recovery."""
    alert_url = sink.url(ALERTS) if url else ""
    fleet = Fleet(temporal_client, temporal_settings).with_settings(alert_url=alert_url)
    fleet.incidents.others = others
    await fleet.start()
    job = fresh("silent")
    await tell(temporal_client, word(job))
    await row(fleet, job, lambda found: found.notice == notice)
    await tell(temporal_client, word(job, 1, opens=False))
    closed = await row(fleet, job, lambda found: found.closed_at is not None)
    await temporal_client.get_workflow_handle(f"incident/{TENANT}/dead_letter/{job}").result()
    silent = notice != "delivered"
    assert (closed.recovery_notice is None or not silent, len(sink.at(ALERTS)) == 0) == (True, silent)
    await fleet.stop()
