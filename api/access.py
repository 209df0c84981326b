"""What endpoints ask for: the application's state, and a caller whose token opens the call."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Path, Request

from api.auth.principal import Principal, Scope
from api.jobs.refs import no_such_job
from api.problems import Kind, ProblemError
from api.state import AppState
from workflows.contracts.names import JOB_ID_PATTERN


def app_state(request: Request) -> AppState:
    state: AppState = request.app.state.carillon
    return state


State = Annotated[AppState, Depends(app_state)]


def caller_with(scope: Scope) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency: the caller, if the token is valid, carries the scope, and the tenant is not too fast.

    It runs before any body is read.
    """

    async def caller(request: Request) -> Principal:
        state = app_state(request)
        principal = await state.verifier.principal(request.headers.get("authorization"))
        state.request_rate.take(principal.tenant)
        if scope not in principal.scopes:
            raise ProblemError(
                Kind.FORBIDDEN,
                f"This call needs the scope `{scope}`; the token has "
                f"`{' '.join(sorted(principal.scopes)) or 'none'}`.",
                headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
                scope=scope,
            )
        return principal

    return caller


Reader = Annotated[Principal, Depends(caller_with("jobs:read"))]
Writer = Annotated[Principal, Depends(caller_with("jobs:write"))]
TenantWriter = Annotated[Principal, Depends(caller_with("tenant:write"))]

_JOB_ID = re.compile(JOB_ID_PATTERN)


def existing_id(job: str) -> str:
    """The id in an address; one that no job can have is 404, as any other that is not there."""
    if _JOB_ID.fullmatch(job) is None:
        raise no_such_job(job)
    return job


LetterId = Annotated[str, Path(description="The `id` of a dead letter.", max_length=1000)]
ExecutionId = Annotated[str, Path(description="The `id` of an execution.", max_length=1000)]
JobId = Annotated[str, Path(description=f"The job's id: `{JOB_ID_PATTERN}`.", examples=["daily-report"])]
