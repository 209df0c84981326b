"""Nothing is done for a server that may be another installation's."""

from __future__ import annotations

from typing import Any

from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from infra.temporal.home import Home


class AtHome(Interceptor):
    """Activities begin once the server is known to be ours. What is another's waits until the process ends;
    its own workers have it after its lease."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Waiting(next, self._home)


class _Waiting(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, home: Home) -> None:
        super().__init__(next)
        self._home = home

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        await self._home.certain()
        return await super().execute_activity(input)
