"""Doing what a POST asks for once, however often it is sent under one Idempotency-Key.

The database remembers for a day which request a key stands for, and its answer. While it is away the
calls go on: then only the job protects, which knows the ids of its last hundred changes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

from fastapi.responses import JSONResponse

from api.clock import Clock, RandomName
from api.idempotency import IdempotencyKey
from api.jobs.recent_keys import RecentKeys
from api.problems import Kind, ProblemError
from infra.database.errors import DatabaseError
from infra.database.idempotency import IdempotencyKeys

log = logging.getLogger(__name__)

WITHIN_S = 1.0
"""Time the table may take before a call and after it; afterwards the call goes on without it."""
ANSWER_MAX_BYTES = 32 * 1024
"""A longer answer is not kept: a repeat asks the job again, which says what it says then."""
REPLAYED = {"Idempotent-Replayed": "true"}
_KEPT_HEADERS = ("location", "etag")

Act = Callable[[str], Awaitable[JSONResponse]]
"""Does the change. Its argument names it, the same for every repeat: the id of the update, and
``Actor.operation``."""


class Once:
    def __init__(self, keys: IdempotencyKeys, clock: Clock, random_name: RandomName) -> None:
        self._keys = keys
        self._recent = RecentKeys()
        self._clock = clock
        self._random_name = random_name

    async def answer(self, key: IdempotencyKey | None, act: Act) -> JSONResponse:
        """The answer of ``act``, or the one that an earlier call under this key was given.

        Only answers that are a success are kept, and of those none that asks for another try
        (Retry-After). A repeat while the first call is under way, or after its process has died, does
        the same under the same name, which carries the change on. Raises 422 when the key belongs to
        another request.
        """
        if key is None:
            return await act(self._random_name())
        self._recent.check(key, self._clock())
        kept = await self._take(key)
        if kept is not None:
            return _replay(kept)
        response = await act(key.derive_exact("operation"))
        await self._keep(key, response)
        return response

    async def _take(self, key: IdempotencyKey) -> str | None:
        try:
            async with asyncio.timeout(WITHIN_S):
                taken = await self._keys.take(key.tenant, key.key, key.fingerprint, self._clock())
        except (DatabaseError, TimeoutError) as error:
            log.info("an Idempotency-Key is used without the database: %s", error)
            return None
        if taken.fingerprint != key.fingerprint:
            raise ProblemError(
                Kind.IDEMPOTENCY_MISMATCH,
                "The Idempotency-Key belongs to another request; use a new key for a new one.",
            )
        return taken.response

    async def _keep(self, key: IdempotencyKey, response: JSONResponse) -> None:
        body = bytes(response.body)
        final = response.status_code < 300 and "retry-after" not in response.headers
        if not final or len(body) > ANSWER_MAX_BYTES:
            return
        headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
        kept = json.dumps({"status": response.status_code, "headers": headers, "body": body.decode()})
        try:
            async with asyncio.timeout(WITHIN_S):
                await self._keys.answer(key.tenant, key.key, key.fingerprint, kept)
        except (DatabaseError, TimeoutError) as error:
            log.info("the answer of an Idempotency-Key is not kept: %s", error)


def _replay(kept: str) -> JSONResponse:
    found = json.loads(kept)
    return JSONResponse(json.loads(found["body"]), found["status"], {**found["headers"], **REPLAYED})
