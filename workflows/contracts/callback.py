"""What a callback token holds: the right to renew the lease of one delivery, and to report its end."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field

from workflows.contracts.attempt import HeartbeatDetails, Overrun
from workflows.contracts.base import Contract, Instant

REPEATS_FOR = timedelta(days=1)
"""How long behind its end a token still opens an answer that says what became of the run."""


class CallbackClaims(Contract):
    """One delivery of one attempt, and all that its end has to be reported with."""

    task_token: str
    """Temporal's right to the activity, in base64: fenced, so a stale one is refused."""
    workflow_id: str
    run_id: str
    activity_id: str
    """With the two above: where the history says how this attempt ended."""
    tenant: str
    job: str
    key: str
    attempt: int
    beat: HeartbeatDetails
    """What each renewal leaves with the server; its ``deliveries`` counts this delivery."""
    sent_at: Instant
    ends_at: Instant
    """When ``ends_by`` is used up."""
    ends_by: Literal["timeout", "max_duration"]
    expires_at: Instant
    timeout_s: float = Field(ge=0)
    """What ``ends_by`` allows from ``sent_at`` on."""
    overrun: Overrun | None = None
    tzdata: str = ""

    @property
    def delivery(self) -> int:
        return self.beat.deliveries
