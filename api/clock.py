"""Time and chance, made at the entry point and passed down, so that tests can set both."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""The present, aware, in UTC."""
RandomName = Callable[[], str]
"""A fresh name of 20 characters, ``[0-9a-f]``."""


def system_clock() -> datetime:
    return datetime.now(UTC)


def random_name() -> str:
    return secrets.token_hex(10)
