"""A concurrency group: a limit over several jobs, one workflow a group (docs/groups.md)."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from workflows.contracts.actor import Actor
from workflows.contracts.base import Contract, Duration, Instant

GROUP_LIMIT_MAX = 500
GROUP_QUEUE_MAX = 2_000
"""Runs that may wait for one group; a further one is not kept and asks again later. With the places it
is bounded by what one payload may hold, 2 MiB, since the group passes all of it on."""
GROUP_SHOWN = 100
"""Holders, and runs that wait, in a view."""


class GroupAsk(Contract):
    """A run asks for a place. Asked again with the same ``key`` and ``workflow_id``, it keeps its turn."""

    tenant: str
    group: str
    key: str
    """The key of the run's occurrence."""
    workflow_id: str
    """Of the job or run that is told ``granted`` and is asked ``holds``."""
    at: Instant
    lasts: Duration
    """How long a grant can be needed at most; after it the place is free whatever the holder says."""


class GroupGrant(Contract):
    """The group's word to a run: it has a place. ``token`` grows with every grant of the group."""

    group: str
    key: str
    token: int
    expires_at: Instant | None = None
    """From here on the place may be somebody else's."""


class GroupLeave(Contract):
    """Give a place back, or stop waiting for one (``token`` None). An older token changes nothing."""

    group: str
    key: str
    workflow_id: str
    token: int | None = None


class GroupPlace(Contract):
    """A run's side of its place: asked for, and from ``token`` on granted."""

    group: str
    key: str
    token: int | None = None
    until: Instant | None = None
    """When the grant expires."""


class GroupHolder(Contract):
    key: str
    workflow_id: str
    token: int
    granted_at: Instant
    expires_at: Instant
    told: bool = False
    """The grant has reached its workflow."""
    asked_at: Instant | None = None
    """When it was asked last whether it still holds the place."""


class GroupWaiting(Contract):
    key: str
    workflow_id: str
    at: Instant
    lasts: Duration


class GroupState(Contract):
    """All a group is; passed on at every continue-as-new. Mutable: its workflow is its only writer."""

    model_config = ConfigDict(frozen=False)

    tenant: str
    group: str
    limit: int = 1
    holders: list[GroupHolder] = []
    waiting: list[GroupWaiting] = []
    """First come, first served."""
    last_token: int = 0
    limit_at: Instant | None = None
    """When the limit was set last."""


class GroupLimit(Contract):
    """Set how many runs may hold a place at once."""

    limit: int = Field(ge=1, le=GROUP_LIMIT_MAX)
    actor: Actor


class GroupView(Contract):
    """A group as its workflow knows it; of long lists the first :data:`GROUP_SHOWN`."""

    limit: int
    limit_at: Instant | None = None
    holders: list[GroupHolder] = []
    held: int = 0
    waiting: list[GroupWaiting] = []
    queued: int = 0
    """How many wait, those beyond the list included."""
    deleted: bool = False
