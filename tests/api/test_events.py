"""Event streams: what happens is told in order, once, and again from where a client was cut off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.auth.principal import Principal
from api.events import HEARTBEAT, Streams
from api.jobs.answers import ExecutionAnswer, JobAnswer
from api.state import AppState
from infra.database import Database, Feed, History, JobIndex
from infra.settings import Settings
from tests.api.conftest import client_of, settings_in, started
from tests.api.server import Server, serving
from tests.api.sink import Sink
from tests.api.test_outages import without_database
from tests.api.tokens import bearer
from tests.infra.database.samples import NOON, create, execution, job_row, record, run_records
from tests.stopwatch import Stopwatch

FAR = {"cron": "0 9 1 1 *"}


@dataclass(frozen=True)
class Event:
    id: str
    name: str
    data: Any


class Listener:
    """One open stream, read as a browser reads it."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.aiter_lines()
        self.comments = 0

    async def next(self) -> Event | None:
        """The next event; None at the end of the stream."""
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "event" in fields:
                return Event(fields["id"], fields["event"], json.loads(fields["data"]))
        return None

    async def until(self, wanted: Callable[[Event], bool]) -> list[Event]:
        """Events up to the first that is wanted."""
        found: list[Event] = []
        async with asyncio.timeout(20):
            while event := await self.next():
                found.append(event)
                if wanted(event):
                    return found
        raise AssertionError(f"the stream ended after {found}")


@asynccontextmanager
async def listening(
    server: Server,
    tenant: str = "acme",
    query: str = "",
    *,
    headers: dict[str, str] | None = None,
    **claims: Any,
) -> AsyncIterator[Listener]:
    async with (
        httpx.AsyncClient(headers={**bearer(tenant, **claims), **(headers or {})}, timeout=30) as client,
        client.stream("GET", f"{server.url}/v1/events{query}") as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        listener = Listener(answer)
        ready = await listener.next()
        assert ready is not None
        assert ready.name == "ready"
        yield listener


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """Temporal is away; the tests write what workers would."""
    app = create_app(settings_in(tmp_path_factory.mktemp("events"), max_event_streams=3))
    async with started(app), serving(app, lifespan=False) as served:
        yield served


@pytest.fixture
def state(server: Server) -> AppState:
    found: AppState = server.config.app.state.carillon  # type: ignore[union-attr]
    return found


def told(event: Event) -> str:
    return f"{event.name} {event.data.get('outcome') or event.data.get('status') or event.data['id']}"


async def test_changes_of_jobs_and_executions_are_told_as_they_happen(
    server: Server, state: AppState
) -> None:
    tenant = "told"
    async with listening(server, tenant) as first, listening(server, "other-tenant") as stranger:
        await create(state.index, tenant)
        fired, ended = run_records(tenant)
        events = await first.until(lambda e: e.name == "job")
        JobAnswer.model_validate(events[-1].data)
        await state.history.write([fired])
        events += await first.until(lambda e: e.name == "execution")
        await state.history.write([ended])
        events += await first.until(lambda e: e.name == "execution")
        ExecutionAnswer.model_validate(events[-1].data)
        assert events[-1].data["attempts"][0]["status_code"] == 200
        await state.index.apply(tenant, job_row(change=2, status="deleted", revision=2))
        events += await first.until(lambda e: e.name == "job_deleted")
        assert [told(event) for event in events] == [
            "job active", "execution running", "execution succeeded", "job_deleted report",
        ]  # fmt: skip
        await create(state.index, "other-tenant", "mine")
        assert [told(e) for e in await stranger.until(lambda _: True)] == ["job active"]


async def test_a_client_that_was_cut_off_goes_on_where_it_was(server: Server, state: AppState) -> None:
    """From the id of any event, from the one that greets, and in any process."""
    tenant = "resumes"
    rows = [record(tenant, execution=execution(tenant, at=NOON + timedelta(minutes=n))) for n in range(130)]
    async with listening(server, tenant) as stream:
        await create(state.index, tenant)
        await state.history.write(rows[:5])
        seen = await stream.until(lambda e: e.data.get("key") == rows[4].execution.key)  # type: ignore[union-attr]
    await state.history.write(rows[5:])
    everything = [row.execution.key for row in rows if row.execution]
    for cut in (0, 3, 5):
        async with listening(server, tenant, headers={"last-event-id": seen[cut].id}) as again:
            events = await again.until(lambda e: e.data.get("key") == everything[-1])
        assert [event.data["key"] for event in events] == everything[cut:]


async def test_one_jobs_events_only(server: Server, state: AppState) -> None:
    tenant = "one-job"
    async with listening(server, tenant, "?job=b") as stream:
        for job in ("a", "b", "c"):
            await create(state.index, tenant, job)
            await state.history.write(run_records(tenant, job))
        await state.index.apply(tenant, job_row("b", change=2, status="paused"))
        events = await stream.until(lambda e: told(e) == "job paused")
    assert {event.data.get("job", event.data["id"]) for event in events} == {"b"}


async def test_only_so_many_streams_are_open_and_closed_ones_make_room(
    server: Server, state: AppState
) -> None:
    async with (
        listening(server, "greedy"), listening(server, "greedy"), listening(server, "greedy"),
        httpx.AsyncClient(headers=bearer("greedy")) as client,
    ):  # fmt: skip
        refused = await client.get(f"{server.url}/v1/events")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        async with listening(server, "modest"):
            pass
    async with asyncio.timeout(30):
        while len(state.streams):
            await asyncio.sleep(0.01)
    async with listening(server, "greedy"):
        assert len(state.streams) == 1


async def test_a_stream_ends_with_its_token(server: Server) -> None:
    async with listening(server, "short", exp=datetime.now(UTC) + timedelta(seconds=1)) as stream:
        async with asyncio.timeout(30):
            assert await stream.next() is None


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/events", {"last-event-id": "x"}, 422),
        ("/v1/events?jobs=a", {}, 422),
        ("/v1/events", {"authorization": "Bearer x"}, 401),
        ("/v1/events", bearer(scope="jobs:write"), 403),
    ],
)
async def test_a_stream_that_cannot_begin_says_why(
    server: Server, path: str, headers: dict[str, str], status: int
) -> None:
    async with httpx.AsyncClient(headers={**bearer(), **headers}) as client:
        answer = await client.get(server.url + path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


async def test_an_outage_of_the_database_delays_events_and_loses_none(
    server: Server, state: AppState
) -> None:
    tenant = "outage"
    app: FastAPI = server.config.app  # type: ignore[assignment]
    own = Database.open(state.settings.database_url)
    async with listening(server, tenant) as stream:
        with without_database(app):
            await create(JobIndex(own), tenant)
            await History(own).write(run_records(tenant))
            async with httpx.AsyncClient(headers=bearer(tenant)) as client:
                assert (await client.get(f"{server.url}/v1/events")).status_code == 503
            await asyncio.sleep(0.7)
        events = await stream.until(lambda e: told(e) == "execution succeeded")
        assert [told(event) for event in events] == ["job active", "execution succeeded"]
    await own.close()


async def test_a_quiet_stream_beats(state: AppState) -> None:
    """So that whoever stands between does not cut it."""
    streams = Streams(Feed(state.database), state.clock, per_tenant=1, heartbeat_s=0.05)
    caller = Principal("quiet", "ann", frozenset())
    stream = streams.events(caller, await streams.begin(None), None)
    texts = [await anext(stream) for _ in range(3)]
    assert texts[0].startswith("retry: ")
    assert texts[1:] == [HEARTBEAT, HEARTBEAT]
    streams.end()
    assert [text async for text in stream] == []


async def test_nobody_asks_the_database_while_nobody_listens(state: AppState) -> None:
    asked = 0
    feed = Feed(state.database)

    async def counted(tenants: Any) -> dict[str, int]:
        nonlocal asked
        asked += 1
        return {}

    feed.heads = counted  # type: ignore[method-assign]
    streams = Streams(feed, state.clock, per_tenant=1, look_every_s=0.001)
    running = asyncio.create_task(streams.run())
    await asyncio.sleep(0.05)
    assert asked == 0
    with streams.place("acme"):
        async with asyncio.timeout(30):
            while asked < 3:
                await asyncio.sleep(0.001)
    running.cancel()


@pytest.mark.parametrize("warned", [True, False], ids=["told to end its streams", "only stopped"])
async def test_a_stopping_process_ends_its_streams_within_its_grace(tmp_path: Path, warned: bool) -> None:
    app = create_app(settings_in(tmp_path))
    async with serving(app) as server:
        await asyncio.wait_for(app.state.carillon.wait_migrated(), 10)
        async with listening(server) as stream:
            with Stopwatch() as ending:
                server.should_exit = True
                if warned:
                    app.state.carillon.streams.end()
                assert await asyncio.wait_for(stream.next(), 30) is None, "its client sees a whole answer"
            assert ending.seconds < (1 if warned else 4)
            assert len(app.state.carillon.streams) == 0


@pytest.mark.usefixtures("worker")
async def test_a_whole_life_is_told_by_a_process_that_did_none_of_it(
    live_settings: Settings, live: FastAPI, sink: Sink
) -> None:
    """One API process makes the changes, a worker runs, another API process tells."""
    async with (
        client_of(live, "watched") as api,
        serving(create_app(live_settings)) as server,
        listening(server, "watched") as stream,
    ):
        body = {"id": "life", "schedule": FAR, "target": sink.target("/life")}
        assert (await api.post("/v1/jobs", json=body)).status_code == 201
        assert (await api.post("/v1/jobs/life/trigger")).status_code == 202
        events = await stream.until(lambda e: told(e) == "execution succeeded")
        await api.delete("/v1/jobs/life")
        events += await stream.until(lambda e: e.name == "job_deleted")
    assert told(events[0]) == "job active"
    assert events[-1].data == {"id": "life", "revision": 1}
