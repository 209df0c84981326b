"""The caller, as the token names it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

Scope = Literal["jobs:read", "jobs:write", "tenant:write", "platform:admin"]
SCOPES: dict[str, str] = {
    "jobs:read": "Read everything of the token's tenant.",
    "jobs:write": "Create, change, run and delete jobs.",
    "tenant:write": "Change the tenant's own settings.",
    "platform:admin": "Manage tenants.",
}
assert set(SCOPES) == set(get_args(Scope))


@dataclass(frozen=True, slots=True)
class Principal:
    """``tenant`` comes from the token and from nowhere else; ``subject`` is its ``sub``."""

    tenant: str
    subject: str
    scopes: frozenset[str]
    expires_at: datetime | None = None
    """When the token ends; what goes on for longer than a call ends with it."""
