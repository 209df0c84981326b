"""Pages of a list while jobs come, go and continue as new."""

from __future__ import annotations

import asyncio
import contextlib

from tests.processes.conftest import Installation
from tests.sink import Sink

LASTING = 500
PAGE = 37


async def test_each_job_that_lived_throughout_is_listed_exactly_once(
    installation: Installation, sink: Sink
) -> None:
    target = {"type": "http", "url": sink.url("/paging")}
    rare = {"cron": "0 3 1 1 *"}
    lasting = [f"lasting-{number:03}" for number in range(LASTING)]
    often = set(lasting[:20])
    for start in range(0, LASTING, 100):
        jobs = [
            {"id": job, "schedule": {"every": 2} if job in often else rare, "target": target}
            for job in lasting[start : start + 100]
        ]
        answer = await installation.api.post("/jobs/batch", json={"jobs": jobs}, timeout=60)
        assert answer.status_code == 200, answer.text[:500]
        assert {result["status"] for result in answer.json()["results"]} == {201}, answer.text[:500]

    async def churn() -> None:
        number = 0
        while True:
            job = f"l-churn-{number % 7}"
            await installation.api.post("/jobs", json={"id": job, "schedule": rare, "target": target})
            await installation.api.delete(f"/jobs/l-churn-{(number + 3) % 7}")
            number += 1
            await asyncio.sleep(0.05)

    churning = asyncio.create_task(churn())
    try:
        for sort in ("id", "-created_at"):
            listed: list[str] = []
            cursor: str | None = None
            while True:
                query = {"limit": str(PAGE), "sort": sort, "q": "l"} | ({"cursor": cursor} if cursor else {})
                page = (await installation.api.get("/jobs", params=query)).json()
                listed += [item["id"] for item in page["items"]]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
                await asyncio.sleep(0.1)
            assert sorted(job for job in listed if job.startswith("lasting-")) == lasting
    finally:
        churning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await churning
