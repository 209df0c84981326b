"""Idempotency-Keys of calls that change something: which request a key stands for, and its answer.

A key is taken by one statement and never locked, so that a caller that dies half-way leaves nothing
to clean up: whoever comes with the same request carries it on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache

import sqlalchemy as sa

from infra.database.engine import Database
from infra.database.reservations import KEY_LIFETIME
from infra.database.schema import idempotency_keys
from infra.database.upsert import Upsert, insert


@dataclass(frozen=True, slots=True)
class TakenKey:
    """What a key stands for. ``response`` is None until its request has been answered."""

    fingerprint: str
    response: str | None


class IdempotencyKeys:
    """The table ``idempotency_keys``. Raises DatabaseUnavailable without an answer in time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, tenant: str, key: str, fingerprint: str, now: datetime) -> TakenKey:
        """Take the key for this request, or find the request that took it within its 24 hours."""

        def work(connection: sa.Connection) -> TakenKey:
            connection.execute(
                _take_statement(connection.dialect.name),
                {
                    "tenant": tenant,
                    "key": key,
                    "fingerprint": fingerprint,
                    "created_at": now,
                    "expires_at": now + KEY_LIFETIME,
                },
            )
            row = connection.execute(_FIND, {"in_tenant": tenant, "in_key": key}).one()
            return TakenKey(row.fingerprint, row.response)

        return await self._database.write(work)

    async def answer(self, tenant: str, key: str, fingerprint: str, response: str) -> None:
        """Keep the answer of the request that holds the key; the first one stays."""
        await self._database.write(
            lambda connection: connection.execute(
                _ANSWER,
                {"in_tenant": tenant, "in_key": key, "in_fingerprint": fingerprint, "answered": response},
            )
        )


@cache
def _take_statement(dialect: str) -> Upsert:
    """A key whose day is over is as good as none."""
    fresh = insert(dialect, idempotency_keys)
    renewed = {name: fresh.excluded[name] for name in ("fingerprint", "created_at", "expires_at")}
    return fresh.on_conflict_do_update(
        index_elements=[idempotency_keys.c.tenant, idempotency_keys.c.key],
        set_={**renewed, "ref": None, "response": None},
        where=idempotency_keys.c.expires_at <= fresh.excluded.created_at,
    )


_FIND = sa.select(idempotency_keys.c.fingerprint, idempotency_keys.c.response).where(
    idempotency_keys.c.tenant == sa.bindparam("in_tenant"), idempotency_keys.c.key == sa.bindparam("in_key")
)
_ANSWER = (
    sa.update(idempotency_keys)
    .where(
        idempotency_keys.c.tenant == sa.bindparam("in_tenant"),
        idempotency_keys.c.key == sa.bindparam("in_key"),
        idempotency_keys.c.fingerprint == sa.bindparam("in_fingerprint"),
        idempotency_keys.c.response.is_(None),
    )
    .values(response=sa.bindparam("answered"))
)
