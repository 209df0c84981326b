"""Who asked for a change."""

from __future__ import annotations

from workflows.contracts.base import Contract, Instant


class Actor(Contract):
    """Who asked (the token's ``sub``) and the instant the API accepted it."""

    by: str = ""
    at: Instant
    operation: str = ""
    """The call's stable id, the same when a client repeats it; empty: it cannot be told apart."""
