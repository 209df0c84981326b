"""Jobs with callbacks, as their workflow sees them: handed over, paused, ended, lost, replayed."""

from __future__ import annotations

import base64

from aiohttp import web
from temporalio.client import AsyncActivityHandle, Client

from infra.callback_token import CallbackTokens
from infra.settings import Settings
from tests.fleet import Fleet, fresh
from tests.sink import Arrival, Sink
from tests.workflows.asking import Job, at, ended, from_now, pause, seen, stored, told
from workflows.contracts.callback import CallbackClaims
from workflows.contracts.job import InFlight
from workflows.domain import callback

UPDATES = True


async def accept(_: Arrival, __: int) -> web.Response:
    return web.Response(status=202)


def claims_of(arrival: Arrival, settings: Settings) -> CallbackClaims:
    tokens = CallbackTokens(settings.signing_secret.get_secret_value())
    return tokens.open(arrival.headers["carillon-callback"].rpartition("/")[2])


def activity_of(client: Client, claims: CallbackClaims) -> AsyncActivityHandle:
    return client.get_async_activity_handle(task_token=base64.b64decode(claims.task_token))


async def accepted(fleet: Fleet, sink: Sink, path: str) -> tuple[Job, CallbackClaims]:
    """A scheduled run that its target has."""
    sink.answers[path] = accept
    job = await fleet.create(
        fresh("callback"),
        {
            "schedule": {"every": 3600, "anchor": at(from_now(1.5))},
            "target": {"url": sink.url(path)},
            "completion": "callback",
            "heartbeat_timeout": 3,
        },
    )
    [arrival] = await sink.wait_for(path, 1)
    return job, claims_of(arrival, fleet.settings)


async def test_a_run_is_paused_over_lost_delivered_again_and_completed(
    fleet: Fleet, sink: Sink, temporal_client: Client
) -> None:
    """A pause says that it is in flight, and it keeps that promise when its lease is lost; the job writes
    the row of its end by itself, though nothing runs any more that could take it along."""
    job, first = await accepted(fleet, sink, "/lost")
    changed = await pause(job)
    assert changed.in_flight == [InFlight(key=first.key, state="in_flight")]
    _, again = await sink.wait_for("/lost", 2)  # nobody beats
    second = claims_of(again, fleet.settings)
    assert (second.key, second.attempt, second.delivery) == (first.key, first.attempt, 2)
    assert (second.beat.reaps, second.beat.started_at is not None) == (1, True)
    report = callback.succeeded(second, "done", second.sent_at)
    await activity_of(temporal_client, second).complete(report)
    rows = await stored(fleet, job, ended)
    assert told(rows) == [("succeeded", None, 1)]
    found = await seen(job, lambda found: found.stats.runs == 1)
    assert (found.stats.succeeded, found.status, found.current) == (1, "paused", None)
