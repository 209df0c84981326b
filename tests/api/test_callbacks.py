"""Callbacks over HTTP: what a target reports of its run, early, late or twice, and what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from api.app import create_app
from infra.callback_token import CallbackTokens
from infra.settings import Settings
from tests.api.conftest import client_of, settings_in, started
from tests.api.eventually import eventually
from tests.api.sink import Sink
from tests.api.tokens import SECRET
from tests.stopping import going_on
from workflows.contracts.attempt import Overrun
from workflows.contracts.names import incident_workflow_id, opaque_id

pytestmark = pytest.mark.usefixtures("worker")

FAR = {"cron": "0 9 1 1 *"}
TOKENS = CallbackTokens(SECRET)


class Run:
    """One run of a job with callbacks, as its target sees it."""

    def __init__(self, target: httpx.AsyncClient, headers: dict[str, str]) -> None:
        self._target = target
        self.url = httpx.URL(headers["carillon-callback"]).path
        self.key = headers["idempotency-key"]
        self.id = opaque_id(self.key)
        self.delivery = int(headers["carillon-delivery"])
        self.execution_id = headers["carillon-execution-id"]

    async def __call__(self, what: str, body: Any = None) -> httpx.Response:
        return await self._target.post(f"{self.url}/{what}", json=body)


@pytest.fixture
async def target(live: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client without a token."""
    async with client_of(live) as client:
        del client.headers["authorization"]
        yield client


@pytest.fixture
def start(api: httpx.AsyncClient, target: httpx.AsyncClient, sink: Sink) -> Any:
    async def started_run(job: str, path: str = "/accept", triggered: bool = True, **more: Any) -> Run:
        """A run that its target has accepted, and that the job knows to have fired."""
        body = {
            "id": job,
            "schedule": FAR,
            "target": sink.target(f"{path}/{job}"),
            "completion": "callback",
            "retry": {"max_attempts": 2, "initial_interval": "PT0.1S"},
            **more,
        }
        made = await api.post("/v1/jobs", json=body)
        assert made.status_code == 201, made.text
        if triggered:
            run = await api.post(f"/v1/jobs/{job}/trigger", json={"request": "one"})
            assert run.status_code == 202
        return Run(target, (await sink.delivery(f"{path}/{job}")).headers)

    return started_run


async def ended(api: httpx.AsyncClient, run: Run, outcome: str) -> dict[str, Any]:
    return await eventually(api, f"/v1/executions/{run.id}", lambda found: found["outcome"] == outcome)


async def test_a_run_is_completed_by_its_target(api: httpx.AsyncClient, start: Any, sink: Sink) -> None:
    run = await start("completes")
    assert (await run("heartbeat")).status_code == 204
    assert (await api.get(f"/v1/executions/{run.id}")).json()["outcome"] == "running"
    done = await run("complete", {"answer": {"rows": 3}})
    assert (done.status_code, done.content) == (204, b"")
    found = await ended(api, run, "succeeded")
    [attempt] = found["attempts"]
    assert (attempt["status_code"], attempt["answer"], attempt["delivery"]) == (202, '{"rows": 3}', 1)
    assert (await run("complete", {"answer": {"rows": 3}})).status_code == 204, "the very same again"
    for what, body in (("complete", {"answer": "other"}), ("fail", None), ("heartbeat", None)):
        refused = await run(what, body)
        assert (refused.status_code, refused.json()["outcome"]) == (409, "succeeded"), what
    assert len(sink.at("/accept/completes")) == 1
    job = (await api.get("/v1/jobs/completes")).json()
    assert (job["stats"]["runs"], job["stats"]["succeeded"]) == (1, 1)


async def test_a_run_that_fails_is_tried_again_with_a_token_of_its_own(
    api: httpx.AsyncClient, start: Any, sink: Sink, target: httpx.AsyncClient
) -> None:
    first = await start("fails")
    assert (await first("fail", {"error": "locked", "retry_after": 0})).status_code == 204
    assert (await first("fail", {"error": "locked", "retry_after": 0})).status_code == 204
    second = Run(target, (await sink.delivery("/accept/fails", 2)).headers)
    assert (second.key, second.execution_id) == (first.key, first.key + ":2")
    others = [
        ("complete", None),
        ("fail", {"error": "locked", "retryable": False}),
        ("fail", {"error": "locked"}),
    ]
    for what, body in others:
        stale = await first(what, body)
        assert (stale.status_code, stale.json()["outcome"]) == (409, "failed"), (what, body)
    assert (await second("fail", {"error": "unknown", "retryable": False})).status_code == 204
    found = await ended(api, second, "dead_lettered")
    assert [(one["outcome"], one["error"]) for one in found["attempts"]] == [
        ("failed", "locked"),
        ("failed", "unknown"),
    ]


async def test_another_success_ends_the_run_at_once(api: httpx.AsyncClient, start: Any) -> None:
    run = await start("at-once", path="/plain")
    found = await ended(api, run, "succeeded")
    assert found["attempts"][0]["status_code"] == 200
    late = await run("fail", {"error": "no"})
    assert (late.status_code, late.json()["outcome"]) == (409, "succeeded")


async def test_a_word_that_comes_before_our_reading_of_the_202_counts(
    api: httpx.AsyncClient, start: Any, sink: Sink
) -> None:
    """Whatever the answer is then, nothing is written over what the target reported."""
    sink.released.clear()
    run = await start("early", path="/slow")
    assert (await run("complete", {"answer": "done"})).status_code == 204
    sink.released.set()  # and answers 200, too late
    found = await ended(api, run, "succeeded")
    assert found["attempts"][0]["answer"] == "done"
    assert (await run("complete", {"answer": "done"})).status_code == 204
    assert len(sink.at("/slow/early")) == 1


@pytest.mark.usefixtures("hasty_stops")
async def test_a_pause_lets_a_run_go_on_and_a_cancellation_reaches_it_at_its_next_heartbeat(
    api: httpx.AsyncClient, start: Any
) -> None:
    run = await start("cancelled")
    assert (await run("heartbeat")).status_code == 204
    paused = (await api.post("/v1/jobs/cancelled/pause", json={})).json()
    assert paused["in_flight"] == [], "a pause does not concern a triggered run"
    cancelled = await api.post(f"/v1/executions/{run.id}/cancel")
    assert cancelled.json()["in_flight"] == [{"key": run.key, "state": "stopping"}]
    told = await run("heartbeat")
    assert (told.status_code, told.json()["outcome"]) == (410, "cancelled"), told.text
    found = await ended(api, run, "cancelled")
    assert found["reason"] == "asked"
    for what in ("heartbeat", "complete", "fail"):
        assert (await run(what)).status_code == 410, what


async def test_a_deletion_that_lets_runs_finish_says_in_flight_at_once(
    api: httpx.AsyncClient, start: Any
) -> None:
    run = await start("finishes")
    deleted = (await api.delete("/v1/jobs/finishes")).json()
    assert deleted["in_flight"] == [{"key": run.key, "state": "in_flight"}]
    assert (await run("heartbeat")).status_code == 204
    assert (await run("complete")).status_code == 204


@pytest.mark.usefixtures("hasty_stops")
async def test_a_failure_of_a_run_that_was_to_stop_is_not_tried_again(
    api: httpx.AsyncClient, start: Any, sink: Sink
) -> None:
    run = await start("stops")
    await api.post(f"/v1/executions/{run.id}/cancel")
    assert (await run("fail", {"error": "broken off"})).status_code == 410
    await ended(api, run, "cancelled")
    assert len(sink.at("/accept/stops")) == 1


async def test_a_run_is_replaced_once_its_target_has_been_told(
    api: httpx.AsyncClient, start: Any, sink: Sink
) -> None:
    """The next one is delivered as soon as the target knows, which is at its next heartbeat."""
    run = await start("replaced", triggered=False, schedule={"every": 2}, concurrency={"policy": "replace"})
    async with asyncio.timeout(20):
        while (told := await run("heartbeat")).status_code == 204:
            assert len(sink.at("/accept/replaced")) == 1
            await asyncio.sleep(0.1)
    assert (told.status_code, told.json()["outcome"]) == (410, "cancelled"), told.text
    assert "replaced" in told.json()["detail"]
    await sink.delivery("/accept/replaced", 2)
    found = await ended(api, run, "replaced")
    assert found["attempts"][0]["outcome"] == "cancelled"
    assert (await api.delete("/v1/jobs/replaced?running=cancel")).status_code == 200


async def test_an_attempt_is_timed_out_when_its_time_is_used_up(
    api: httpx.AsyncClient, start: Any, sink: Sink
) -> None:
    """At the target's next word already."""
    run = await start("overdue", timeout="PT1S", retry={"max_attempts": 1})
    claims = TOKENS.open(run.url.rpartition("/")[2])
    assert (claims.ends_by, claims.ends_at - claims.sent_at) == ("timeout", timedelta(seconds=1))
    await asyncio.sleep(max(0.0, (claims.ends_at - datetime.now(UTC)).total_seconds()))
    for _ in range(2):
        late = await run("heartbeat")
        assert (late.status_code, late.json()["outcome"]) == (409, "timed_out"), late.text
    assert "`timeout` allows 1 s" in late.json()["detail"]
    found = await ended(api, run, "dead_lettered")
    assert found["attempts"][0]["outcome"] == "timed_out"


@pytest.mark.parametrize(
    ("bounds", "reason", "tried"),
    [
        ({"timeout": "PT3S"}, None, [("1", "timed_out"), ("2", "succeeded")]),
        ({"max_duration": "PT3S"}, "max_duration", [("1", "timed_out")]),
    ],
    ids=["timeout", "max_duration"],
)
async def test_a_target_that_never_says_a_word_is_timed_out_though_its_lease_is_longer(
    api: httpx.AsyncClient, start: Any, sink: Sink, target: httpx.AsyncClient,
    bounds: dict[str, str], reason: str | None, tried: list[tuple[str, str]],
) -> None:  # fmt: skip
    """It is no reap: the attempt has had its time, and the next one, if there is one, follows."""
    job = f"mute-{next(iter(bounds)).replace('_', '-')}"
    run = await start(job, heartbeat_timeout="PT1H", **bounds)
    claims = TOKENS.open(run.url.rpartition("/")[2])
    if reason is None:
        again = Run(target, (await sink.delivery(f"/accept/{job}", 2)).headers)
        assert (again.execution_id, again.delivery) == (f"{run.key}:2", 1)
        late = await run("complete")
        assert (late.status_code, late.json()["outcome"]) == (409, "timed_out"), late.text
        assert (await again("complete")).status_code == 204
    found = await ended(api, run, "succeeded" if reason is None else "dead_lettered")
    assert found["reason"] == reason
    assert [(one["execution_id"].rpartition(":")[2], one["outcome"]) for one in found["attempts"]] == tried
    first = found["attempts"][0]
    assert (first["delivery"], first["status_code"], first["answer"]) == (1, 202, None)
    assert first["error"] == "the target did not report an end within 3 s"
    assert datetime.fromisoformat(first["ended_at"]) >= claims.ends_at
    job_now = (await api.get(f"/v1/jobs/{job}")).json()
    assert job_now["stats"]["runs"] == 1
    assert len(sink.at(f"/accept/{job}")) == len(tried)


@pytest.mark.usefixtures("hasty_stops")
async def test_a_silent_run_that_was_asked_to_stop_is_given_up_with_its_lease(
    api: httpx.AsyncClient, start: Any, sink: Sink, target: httpx.AsyncClient
) -> None:
    """A cancelled one ends; one that a pause left in flight keeps its promise and is delivered again."""
    lease = {"heartbeat_timeout": "PT3S"}
    cancelled = await start("silent-cancelled", **lease)
    assert (await api.post(f"/v1/executions/{cancelled.id}/cancel")).status_code == 200
    paused = await start("silent-paused", schedule={"in": 0}, triggered=False, **lease)
    assert going_on(await api.post("/v1/jobs/silent-paused/pause", json={})) == {paused.key}
    again = Run(target, (await sink.delivery("/accept/silent-paused", 2)).headers)
    assert (again.execution_id, paused.delivery, again.delivery) == (paused.execution_id, 1, 2)
    for what in ("heartbeat", "complete", "fail"):
        refused = await paused(what)
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:carillon:problem:stale-callback")
    assert (await again("complete")).status_code == 204
    found = await ended(api, again, "succeeded")
    assert [one["delivery"] for one in found["attempts"]] == [2]
    await ended(api, cancelled, "cancelled")
    late = await cancelled("complete")
    assert (late.status_code, late.json()["outcome"]) == (410, "cancelled")
    assert len(sink.at("/accept/silent-cancelled")) == 1


async def test_what_is_no_token_of_ours_is_404_and_an_old_one_410(
    target: httpx.AsyncClient, start: Any
) -> None:
    run = await start("foreign")
    token = run.url.rpartition("/")[2]
    claims = TOKENS.open(token)
    aged = claims.model_copy(update={"expires_at": datetime.now(UTC) - timedelta(seconds=1)})
    others: dict[str, int] = {
        "nonsense": 404,
        token[:-1]: 404,
        token[:40] + ("A" if token[40] != "A" else "B") + token[41:]: 404,
        token * 20: 404,
        CallbackTokens("the secret of another installation").seal(claims): 404,
        TOKENS.seal(aged): 410,
    }
    for other, status in others.items():
        for what in ("heartbeat", "complete", "fail"):
            answer = await target.post(f"/v1/callbacks/{other}/{what}")
            assert answer.status_code == status, answer.text
            assert other not in answer.text
    assert (await run("complete")).status_code == 204


@pytest.mark.parametrize(
    ("what", "body", "status"),
    [
        ("heartbeat", {"answer": 1}, 422),
        ("complete", [1], 422),
        ("complete", {"answer": "x" * 70_000}, 413),
        ("fail", {"error": 7}, 422),
        ("fail", {"retry_after": -1}, 422),
        ("fail", {"retry_after": "soon"}, 422),
    ],
)
async def test_a_body_that_cannot_be_taken_changes_nothing(
    start: Any, what: str, body: Any, status: int
) -> None:
    run = await start(f"body-{what}-{status}-{len(str(body))}")
    assert (await run(what, body)).status_code == status
    assert (await run("complete", {"answer": "x" * 5000})).status_code == 204


async def test_a_job_with_callbacks_needs_to_know_where_they_lead(
    live_settings: Settings, tmp_path: Path, sink: Sink
) -> None:
    """Refused with the name of what is missing; a job of another kind is not concerned."""
    body = {"id": "nowhere", "schedule": FAR, "target": sink.target("/nowhere")}
    nameless = settings_in(
        tmp_path,
        temporal_address=live_settings.temporal_address,
        temporal_namespace=live_settings.temporal_namespace,
        public_url="",
    )
    async with started(create_app(nameless)) as app, client_of(app, "nameless") as api:
        refused = await api.post("/v1/jobs", json={**body, "completion": "callback"})
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == "/completion"
        assert "CARILLON_PUBLIC_URL" in refused.json()["detail"]
        assert (await api.post("/v1/jobs", json=body)).status_code == 201
        assert (await api.patch("/v1/jobs/nowhere", json={"completion": "callback"})).status_code == 422
        assert (await api.delete("/v1/jobs/nowhere")).status_code == 200


async def test_while_temporal_is_away_a_word_is_not_lost_by_repeating_it(
    tmp_path: Path, start: Any, api: httpx.AsyncClient
) -> None:
    run = await start("away")
    async with started(create_app(settings_in(tmp_path))) as app, client_of(app) as other:
        for what in ("heartbeat", "complete", "fail"):
            away = await other.post(f"{run.url}/{what}", json={})
            assert (away.status_code, away.headers["retry-after"]) == (503, "1"), away.text
    assert (await run("complete")).status_code == 204
    await ended(api, run, "succeeded")


async def test_an_overrun_is_told_at_a_heartbeat(
    start: Any, target: httpx.AsyncClient, live_temporal: Client
) -> None:
    """Where no worker has the run any more, and once, whoever beats."""
    run = await start("overruns")
    claims = TOKENS.open(run.url.rpartition("/")[2])
    now = datetime.now(UTC)
    name = incident_workflow_id("acme", "consecutive_skips", "overruns")
    incident = live_temporal.get_workflow_handle(name)
    for at, told in ((now + timedelta(hours=1), False), (now, True), (now, True)):
        token = TOKENS.seal(claims.model_copy(update={"overrun": Overrun(at=at, skips=3)}))
        assert (await target.post(f"/v1/callbacks/{token}/heartbeat")).status_code == 204
        async with asyncio.timeout(20):
            while told and not await exists(incident):
                await asyncio.sleep(0.05)
        assert await exists(incident) == told
    words = [
        event
        async for event in incident.fetch_history_events()
        if event.HasField("workflow_execution_signaled_event_attributes")
    ]
    assert len(words) == 1
    assert (await run("complete")).status_code == 204
    await incident.terminate("the test is over")


async def exists(workflow: WorkflowHandle[Any, Any]) -> bool:
    try:
        await workflow.describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True
