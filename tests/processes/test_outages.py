"""Everything down, nobody to work, or no database: what was due is run, counted, or both."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

from tests.processes.conftest import Installation, installed
from tests.sink import Sink

DOWN = 20


async def test_each_catch_up_policy_after_an_outage_of_everything(tmp_path: Path, sink: Sink) -> None:
    policies = ("latest", "all", "none")
    async with installed(tmp_path / "data") as installation:
        for policy in policies:
            await installation.create(
                id=policy, schedule={"every": 5}, catch_up={"policy": policy, "grace": 1},
                target={"type": "http", "url": sink.url(f"/{policy}")},
            )  # fmt: skip
        for policy in policies:
            await sink.wait_for(f"/{policy}", 1)
        await installation.stop()
        down = time.time()
        await asyncio.sleep(DOWN)
        await installation.start()
        up = time.time()
        for policy in policies:
            before = len([one for one in sink.at(f"/{policy}") if one.at < down])
            await sink.wait_for(f"/{policy}", before + 2)
        missed = int((up - down) / 5)
        async with asyncio.timeout(30):
            while len([one for one in sink.at("/all") if one.at > down]) < missed:
                await asyncio.sleep(0.2)
        for policy in policies:
            times = [one.headers["carillon-scheduled-time"] for one in sink.at(f"/{policy}")]
            assert len(times) == len(set(times)), f"{policy} repeated an occurrence"
        assert [row for row in await installation.executions("all") if row["outcome"] == "missed"] == []
        for policy in ("latest", "none"):
            rows = await installation.until_executions(
                policy, lambda rows: any(row["outcome"] == "missed" for row in rows)
            )
            stretches = [row for row in rows if row["outcome"] == "missed"]
            assert len(stretches) == 1, (policy, stretches, up - down, sink.at(f"/{policy}"))
            [stretch] = stretches
            assert missed - 1 <= stretch["count"] <= missed + 2
            job = (await installation.api.get(f"/jobs/{policy}")).json()
            assert job["stats"]["missed"] == stretch["count"]


async def test_a_one_off_created_while_no_worker_runs_runs_when_one_is_started(
    tmp_path: Path, sink: Sink
) -> None:
    async with installed(tmp_path / "data", "--workers", "0") as installation:
        created = await installation.create(
            id="later", schedule={"in": "PT2S"}, target={"type": "http", "url": sink.url("/later")}
        )
        assert created["next_runs"][0]["scheduled_time"]
        await asyncio.sleep(8)
        shown = (await installation.api.get("/jobs/later")).json()
        assert shown["status"] == "active"
        assert sink.at("/later") == []
        worker = await installation.start_worker()
        try:
            [arrival] = await sink.wait_for("/later", 1)
            assert arrival.headers["carillon-scheduled-time"] == created["schedule"]["at"]
        finally:
            worker.terminate()
            assert await worker.wait() == 0


async def test_a_job_runs_on_while_the_database_is_away_and_its_rows_are_there_afterwards(
    installation: Installation, sink: Sink
) -> None:
    await installation.create(
        id="each", schedule={"every": 1}, target={"type": "http", "url": sink.url("/each")}
    )
    await sink.wait_for("/each", 3)
    lock = sqlite3.connect(installation.data_dir / "carillon.db", isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    locked = len(sink.at("/each"))
    await sink.wait_for("/each", locked + 20, within=40)
    shown = (await installation.api.get("/jobs/each")).json()
    assert shown["stats"]["succeeded"] >= locked + 15
    lock.execute("ROLLBACK")
    lock.close()
    arrived = await sink.wait_for("/each", locked + 25, within=40)
    late = sorted(one.at - _due(one.headers["carillon-scheduled-time"]) for one in arrived)
    assert late[len(late) // 2] < 2
    keys = {one.key for one in arrived[:-1]}
    rows = await installation.until_executions("each", lambda rows: keys <= {row["key"] for row in rows})
    assert {row["outcome"] for row in rows if row["key"] in keys} == {"succeeded"}


def _due(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


async def test_a_cron_job_in_a_zone_runs_on_its_minute(installation: Installation, sink: Sink) -> None:
    await installation.create(
        id="minutely",
        schedule={"cron": "* * * * *", "timezone": "Europe/London"},
        target={"type": "http", "url": sink.url("/minutely")},
    )
    [arrival] = await sink.wait_for("/minutely", 1, within=75)
    assert arrival.headers["carillon-scheduled-time"].endswith(":00Z")
    assert arrival.at >= _due(arrival.headers["carillon-scheduled-time"])
