"""What a status code means: docs/delivery.md, What the answer means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

RETRIED_STATUSES = frozenset({408, 425, 429})
"""Beside every 5xx."""


class Verdict(NamedTuple):
    kind: Literal["status", "redirect"] | None
    """None: success."""
    retryable: bool


def judge(status: int, success: Sequence[str]) -> Verdict:
    """Success is what the target lists (2xx unless it says otherwise); redirects and other 4xx are final."""
    if any(rule == str(status) or (rule[1:] == "xx" and rule[0] == str(status)[0]) for rule in success):
        return Verdict(None, retryable=False)
    if 300 <= status < 400:
        return Verdict("redirect", retryable=False)
    return Verdict("status", retryable=status in RETRIED_STATUSES or 500 <= status < 600)
