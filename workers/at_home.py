"""Nothing is done for a server that is another installation's."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from infra.temporal.errors import SetupError
from infra.temporal.home import Home


class AtHome(Interceptor):
    """Activities begin only where their task is known to be ours. Another's is neither done nor failed: it
    waits until this process ends, which is soon, and its own workers have it after its lease."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Known(next, self._home)


class _Known(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, home: Home) -> None:
        super().__init__(next)
        self._home = home

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        if not self._home.gave(activity.info().task_token):
            try:
                await self._home.confirm()
            except SetupError:
                await asyncio.Event().wait()  # until the process ends
        return await super().execute_activity(input)
