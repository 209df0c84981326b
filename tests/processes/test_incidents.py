"""Incidents of a whole installation: its workers, its database, and a receiver that verifies."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

from aiohttp import web
from standardwebhooks import Webhook

from api.cli.token import issue_token
from infra.installation import settings_for
from infra.signing import tenant_signing_secret
from tests.processes.conftest import TENANT, Installation
from tests.sink import Arrival, Sink


async def test_a_lease_that_was_lost_is_told_and_over_with_the_next_success(
    installation: Installation, sink: Sink
) -> None:
    """The worker is killed in mid-run; the tenant's own alert URL is told by the next one."""

    async def hang_once(_: Arrival, before: int) -> web.Response:
        await asyncio.sleep(30 if before == 0 else 0)
        return web.Response(text="ok")

    settings = settings_for(installation.data_dir)
    token = issue_token(
        settings, tenant=TENANT, scope="tenant:write", subject="tester", ttl=timedelta(hours=1)
    )
    answer = await installation.api.patch(
        "/tenant", json={"alert_url": sink.url("/alerts")}, headers={"authorization": f"Bearer {token}"}
    )
    assert answer.status_code == 200, answer.text
    sink.answers["/mid"] = hang_once
    await installation.create(id="mid", schedule={"in": 1}, target={"type": "http", "url": sink.url("/mid")})
    await sink.wait_for("/mid", 1)
    await asyncio.sleep(2)
    installation.kill_worker()
    opened, recovered = await sink.wait_for("/alerts", 2, within=60)
    secret = tenant_signing_secret(settings.signing_secret.get_secret_value(), TENANT)
    told: list[dict[str, Any]] = []
    for arrival in (opened, recovered):
        Webhook(secret).verify(arrival.body, arrival.headers)
        told.append(json.loads(arrival.body))
    assert [(one["type"], one["kind"], one["job"]) for one in told] == [
        ("incident.opened", "lease_lost", "mid"),
        ("incident.recovered", "lease_lost", "mid"),
    ]
    async with asyncio.timeout(60):  # the message goes out first, and then the row
        while (shown := (await installation.api.get("/tenant")).json())["open_incidents"]:
            await asyncio.sleep(0.1)
    assert (shown["alerts"], shown["open_incidents"]) == ("tenant", 0)
