"""A concurrency group: a limit over several jobs, one workflow a group (architecture.md, section 6)."""

from __future__ import annotations

from pydantic import ConfigDict

from workflows.contracts.base import Contract, Duration, Instant

GROUP_QUEUE_MAX = 10_000
"""Runs that may wait for one group; a further one is not kept and asks again later."""


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


class GroupLeave(Contract):
    """Give a place back, or stop waiting for one (``token`` None). An older token changes nothing."""

    group: str
    key: str
    workflow_id: str
    token: int | None = None


class GroupHolder(Contract):
    key: str
    workflow_id: str
    token: int
    granted_at: Instant
    expires_at: Instant


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
