"""What a target is sent, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from workflows.contracts.definition import HttpTarget
from workflows.contracts.records import Trigger

ErrorKind = Literal[
    "url", "headers", "body", "dns", "blocked", "tls", "connect", "reset", "protocol", "timeout",
    "redirect", "status",
]  # fmt: skip
"""Why a delivery did not succeed. Never collapse two of them: ``dns`` is retried, ``blocked`` is final.

``url``, ``headers``, ``body``: the definition cannot be sent as it is stored; final.
``dns``: no address could be found. ``blocked``: an address is not allowed; final. ``tls``: no
trusted connection. ``connect``: no connection. ``reset``: the connection broke after the request
may have been written. ``protocol``: what came back is no HTTP answer. ``timeout``: the deadline.
``redirect``: a 3xx, which is never followed; final. ``status``: any other status without success.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One send of one attempt. ``body`` is chosen already: the target's, or a manual run's own."""

    tenant: str
    job: str
    key: str
    execution_id: str
    attempt: int
    delivery: int
    """Counts every send of this execution id, from 1."""
    scheduled_time: str
    """The text in the key; for a manual run the instant of the request."""
    trigger: Trigger
    target: HttpTarget
    body: Any = None
    callback: str | None = None
    """URL up to the token, of a callback job."""
    signing_secrets: tuple[str, ...] = ()
    """``whsec_…`` secrets the tenant has set, two of them during a rotation. Empty: the derived one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of a delivery. Nothing was written to the target if ``written_at`` is None."""

    outcome: Literal["succeeded", "failed", "timed_out"]
    status_code: int | None = None
    error: str | None = None
    """Short text for people; never a header, a query or a body we sent."""
    error_kind: ErrorKind | None = None
    answer: str | None = None
    """The beginning of the answer's body, at most 4 KiB as UTF-8; says so where it was cut."""
    retryable: bool = False
    retry_after_s: float | None = None
    """The target's Retry-After in seconds, from 0 to 3600; only with ``retryable``."""
    written_at: datetime | None = None
    """Instant, by the wall clock, at which the head of the request was handed to the socket."""
