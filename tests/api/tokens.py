"""Tokens for tests, signed with a secret of the tests' own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import jwt

SECRET = "a secret of the tests, longer than thirty-two bytes"
ALL_SCOPES = "jobs:read jobs:write"


def token(tenant: str = "acme", scope: str = ALL_SCOPES, *, secret: str = SECRET, **claims: Any) -> str:
    made = {
        "tenant": tenant,
        "scope": scope,
        "sub": "tester",
        "exp": datetime.now(UTC) + timedelta(hours=1),
        **claims,
    }
    kept = {name: value for name, value in made.items() if value is not None}
    return jwt.encode(kept, secret, algorithm="HS256")


def bearer(tenant: str = "acme", scope: str = ALL_SCOPES, **claims: Any) -> dict[str, str]:
    return {"authorization": f"Bearer {token(tenant, scope, **claims)}"}
