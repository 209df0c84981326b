"""The outermost layer: whatever goes wrong below becomes a problem document, and is counted."""

from __future__ import annotations

import logging
import time

from prometheus_client import Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.clock import RandomName
from api.problem_table import problem_for
from api.problems import Kind, ProblemError, respond
from api.request_id import HEADER, begin_request, current_request_id

log = logging.getLogger(__name__)

REQUESTS = Counter("carillon_api_requests_total", "Answers of the API.", ["method", "route", "status"])
SECONDS = Histogram(
    "carillon_api_request_seconds",
    "From a request to the start of its answer.",
    ["method", "route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class ProblemMiddleware:
    """Lets no exception out; an unknown one is logged whole and answered without its text."""

    def __init__(self, app: ASGIApp, random_name: RandomName) -> None:
        self._app = app
        self._random_name = random_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        status = 0
        request_id = begin_request(Headers(scope=scope).get(HEADER), self._random_name())

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = request_id
                _count(scope, status, time.monotonic() - started)
            await send(message)

        try:
            await self._app(scope, receive, note)
        except ClientDisconnect:
            log.info("the caller of %s %s went away", scope["method"], _route(scope))
        except Exception as error:
            if status:
                raise
            await respond(_problem(error, scope))(scope, receive, note)


def _problem(error: Exception, scope: Scope) -> ProblemError:
    problem = problem_for(error)
    if problem is not None:
        return problem
    log.exception(
        "unhandled error in %s %s, request %s",
        scope["method"],
        _route(scope),
        current_request_id(),
        exc_info=error,
    )
    return ProblemError(Kind.INTERNAL, "This is a fault of the service and has been logged.")


def _count(scope: Scope, status: int, seconds: float) -> None:
    method = scope["method"] if scope["method"] in _METHODS else "other"
    route = _route(scope)
    REQUESTS.labels(method, route, str(status)).inc()
    SECONDS.labels(method, route).observe(seconds)


def _route(scope: Scope) -> str:
    """The route's template, never the path itself: paths hold ids."""
    return str(getattr(scope.get("route"), "path", "unmatched"))
