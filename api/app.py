"""The application factory: ``create_app(settings)``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from api.clock import Clock, RandomName, random_name, system_clock
from api.middleware import ProblemMiddleware
from api.openapi import document, methods_of
from api.problem_table import method_not_allowed, problem_for
from api.problems import Kind, ProblemError, respond
from api.routers import (
    audit,
    backfills,
    bulk,
    callbacks,
    cancellations,
    dead_letters,
    events,
    executions,
    groups,
    job_actions,
    job_batches,
    job_skips,
    jobs,
    operations,
    reruns,
    schedules,
    tenant,
)
from api.state import AppState
from infra.settings import Settings

TAGS = [
    {"name": "Jobs", "description": "Definitions and what is done with them."},
    {"name": "Executions", "description": "The record of every run."},
    {"name": "Callbacks", "description": "What targets report of their runs, by a token of their own."},
    {"name": "Dead letters", "description": "What failed for good, until somebody settles it."},
    {"name": "Groups", "description": "How many runs of several jobs may be under way at once."},
    {"name": "Tenant", "description": "The caller's own settings, and what is wrong now."},
    {"name": "Schedules", "description": "What a schedule means, before it is used."},
    {"name": "Events", "description": "What happens, as it happens."},
    {"name": "Audit", "description": "Who changed what."},
    {"name": "Operations", "description": "For those who run the service."},
]


def create_app(
    settings: Settings, *, clock: Clock = system_clock, random_name: RandomName = random_name
) -> FastAPI:
    """The API over one installation. Raises SetupError when a secret is missing or too
    short, and when the settings of a JWKS do not hold.

    Nothing is connected before the application starts, and Temporal and the database may be away
    even then: the process comes up, and ``/readyz`` says what it waits for.
    """
    state = AppState(settings, clock=clock, random_name=random_name)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with state.running():
            yield

    app = FastAPI(
        title="Carillon",
        version=version("carillon"),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        openapi_tags=TAGS,
    )
    app.state.carillon = state
    app.openapi = partial(document, app)  # type: ignore[method-assign]
    app.add_middleware(ProblemMiddleware, random_name=random_name)
    for kind in (ProblemError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _answer)
    for noun in (
        jobs, job_batches, job_actions, job_skips, backfills, bulk, executions, cancellations, reruns,
        dead_letters, callbacks, schedules, groups, events, audit, tenant, operations,
    ):  # fmt: skip
        app.include_router(noun.router)
    return app


async def _answer(request: Request, error: Exception) -> Response:
    problem = problem_for(error) or ProblemError(Kind.INTERNAL, "This is a fault of the service.")
    if problem.kind is Kind.METHOD_NOT_ALLOWED:
        problem = method_not_allowed(methods_of(request.app.openapi(), request.url.path))
    return respond(problem)
