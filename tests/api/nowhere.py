"""A sender that sends nothing: for tests whose jobs have targets that strangers thought of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from activities.targets.delivery import Answer, Delivery


class Nowhere:
    """Takes the place of ``HttpSender``; every delivery is answered 204."""

    def __init__(self, **_: Any) -> None:
        self.sent = 0

    async def send(
        self, delivery: Delivery, *, deadline: timedelta, before_write: Callable[[], None]
    ) -> Answer:
        before_write()
        self.sent += 1
        return Answer(outcome="succeeded", status_code=204, written_at=datetime.now(UTC))

    async def close(self) -> None:
        pass
