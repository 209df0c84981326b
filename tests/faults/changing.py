"""Changes of watched jobs, each made until somebody answers, and what the answers promise."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from typing import Any

from tests.faults.accounts import epoch
from tests.faults.changes import Changes, Deleted, Paused, Period, Skipped, Version
from tests.faults.crowds import Limit
from tests.faults.processes import ask
from tests.faults.requested import text_of
from tests.faults.watched import Watched

OPEN_END = math.inf


class Changing:
    """One change of a job at a time, so that each answer is that of its own call."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.limits: dict[str, Limit] = {}
        """Of groups."""

    async def pause(self, job: str, request: str) -> Paused:
        async with self._turns[job]:
            answer = await self._post(f"/jobs/{job}/pause", request, {"reason": "for a while"})
            assert answer.status_code == 200, answer.text
            paused = Paused(time.time(), _keys(answer.json()))
            self._changes(job).pauses.append(paused)
        return paused

    async def resume(self, job: str, paused: Paused, request: str) -> None:
        async with self._turns[job]:
            paused.ends = time.time()
            answer = await self._post(f"/jobs/{job}/resume", request)
            assert answer.status_code == 200, answer.text

    async def skip(self, job: str, request: str, ahead: int) -> Skipped | None:
        """Leave out the occurrence that is the ``ahead``-th from now; None: it came too late."""
        async with self._turns[job]:
            now, changes = time.time(), self._changes(job)
            instant = changes.periods[-1].between(now, now + 3600)[ahead]
            body = {"scheduled_time": text_of(instant)}
            answer = await self._post(f"/jobs/{job}/skip", request, body)
            assert answer.status_code in (200, 409), answer.text
            if answer.status_code == 409:
                return None
            changes.skips.append(skipped := Skipped(instant, time.time()))
        return skipped

    async def unskip(self, job: str, skipped: Skipped, request: str) -> None:
        async with self._turns[job]:
            for one in self._changes(job).skips:
                if one.instant == skipped.instant:
                    one.taken_back = time.time()
            body = {"scheduled_time": text_of(skipped.instant)}
            answer = await self._post(f"/jobs/{job}/unskip", request, body)
            # 422: an edit has moved the schedule meanwhile
            assert answer.status_code in (200, 409, 422), answer.text

    async def edit(self, job: str, every: int | None = None, **patch: Any) -> None:
        """Its target, and what else ``patch`` says; ``every``: its schedule, too, in whole seconds."""
        async with self._turns[job]:
            changes = self._changes(job)
            number = len(changes.versions) + 1
            wanted = {**patch, "target": self._watched.receiver.target(job, number)}
            if every is not None:
                wanted["schedule"] = {"every": every, "anchor": text_of(0)}
            answer = await self._patch(job, wanted)
            answered, accepted = time.time(), epoch(answer["updated_at"])
            changes.versions.append(Version(number, answer["revision"], answered))
            if every is not None:
                changes.move(Period(0, every, accepted, answered))

    async def _patch(self, job: str, wanted: dict[str, Any]) -> dict[str, Any]:
        """Done once: a try that was not answered may have been done all the same, now or later."""
        path, url = f"/jobs/{job}", wanted["target"]["url"]
        while True:
            found = await ask(self._watched.installation, "GET", path)
            assert found.status_code == 200, found.text
            if found.json()["target"]["url"] == url:
                return dict(found.json())
            if found.json()["stale"]:
                continue
            headers = {"if-match": found.headers["etag"]}
            answer = await ask(self._watched.installation, "PATCH", path, json=wanted, headers=headers)
            if answer.status_code == 200:
                return dict(answer.json())
            assert answer.status_code == 412, answer.text

    async def bury(self, job: str, *, running: str, every: int, **definition: Any) -> None:
        """Delete it, and create it anew."""
        async with self._turns[job]:
            watched, ref = self._watched, self._watched.refs[job]
            asked = time.time()
            answer = await ask(watched.installation, "DELETE", f"/jobs/{job}", params={"running": running})
            assert answer.status_code == 200 or answer.extensions["tries"] > 1, answer.text
            named = _keys(answer.json()) if answer.status_code == 200 else None
            watched.changes[ref].deleted = Deleted(asked, time.time(), named)
            generation = int(ref.partition("~")[2]) + 1
            watched.buried[ref] = job
            await watched.once_more(job, f"{job}~{generation}", every, **definition)

    async def limit(self, group: str, places: int) -> None:
        async with self._turns[group]:
            known, asked = self.limits[group].places, time.time()
            answer = await ask(self._watched.installation, "PUT", f"/groups/{group}", json={"limit": places})
            assert answer.status_code == 200, answer.text
            since, _, before = known[-1]
            known[-1] = (since, time.time(), before)
            known.append((asked, OPEN_END, places))

    def _changes(self, job: str) -> Changes:
        return self._watched.changes[self._watched.refs[job]]

    async def _post(self, path: str, request: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"idempotency-key": request}
        return await ask(self._watched.installation, "POST", path, json=body or {}, headers=headers)


def _keys(answer: dict[str, Any]) -> frozenset[str]:
    return frozenset(one["key"] for one in answer["in_flight"])
