"""For those who run the service: health, readiness, metrics, documentation. No prefix, no auth."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from pydantic import BaseModel

from api.access import State
from api.openapi import problems
from api.problems import Kind
from api.web.reference import page

router = APIRouter(tags=["Operations"])


_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Health(BaseModel):
    status: str


class Readiness(BaseModel):
    """``ready`` once Temporal answers and the database is migrated."""

    status: str
    temporal: bool
    database: bool


@router.get("/healthz", operation_id="health", summary="Is the process alive", response_model=Health)
async def health() -> JSONResponse:
    """200 as long as the process answers, whatever it depends on."""
    return JSONResponse({"status": "ok"})


@router.get(
    "/readyz",
    operation_id="readiness",
    summary="Can it serve",
    response_model=Readiness,
    responses={503: {"description": "Temporal or the database is away.", "model": Readiness}},
)
async def readiness(state: State) -> JSONResponse:
    """200 once Temporal answers and the database is migrated. Workers do not matter."""
    temporal = await state.temporal_answers()
    ready = temporal and state.migrated
    content = {"status": "ready" if ready else "waiting", "temporal": temporal, "database": state.migrated}
    headers = {} if ready else {"Retry-After": "1"}
    return JSONResponse(content, status_code=200 if ready else 503, headers=headers)


@router.get(
    "/metrics",
    operation_id="metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics() -> Response:
    return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    return HTMLResponse(page(request.app.openapi()), headers={"Content-Security-Policy": _POLICY})


@router.get("/openapi.json", include_in_schema=False, responses=problems(Kind.INTERNAL))
async def openapi(request: Request) -> JSONResponse:
    return JSONResponse(request.app.openapi())
