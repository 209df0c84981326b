"""Jobs: create, list, read, change, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse

from api import examples
from api.access import JobId, Reader, State, Writer, existing_id
from api.auth.principal import Principal
from api.body import PATCH_TYPES, read_object
from api.idempotency import fingerprint, parse_key
from api.jobs.answers import DeletedAnswer, JobAnswer, JobPage
from api.jobs.creation import NewJob, initial_state, initial_view
from api.jobs.editing import Edited, without_read_only
from api.jobs.intake import parse_intake, settle_new
from api.jobs.reading import document_of_row, document_of_view, present_document, view_of
from api.jobs.refs import Found
from api.jobs.tombstones import bury_lost
from api.openapi import body, problems, security
from api.preconditions import IfMatch, mismatch, parse_if_match, wants_absence
from api.problem_table import LATER
from api.problems import Kind, ProblemError, invalid
from api.queries import DeleteQuery, JobQuery
from api.requests import JobPatch, JobRequest
from api.routers.documented import (
    ALWAYS,
    BODY,
    CHANGE,
    CREATE_CALL,
    CREATED,
    ETAG,
    JOB_CHANGE,
    IfMatchHeader,
    KeyHeader,
    job_response,
)
from api.state import AppState
from infra.database.errors import JobExists
from workflows.contracts.actor import Actor
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import DeleteRequest
from workflows.contracts.names import UPDATE_DELETE

router = APIRouter(prefix="/v1/jobs", tags=["Jobs"])


@router.post(
    "",
    operation_id="createJob",
    summary="Create a job",
    status_code=201,
    response_model=JobAnswer,
    responses={
        201: {"description": "The job.", "headers": CREATED},
        **problems(
            *ALWAYS, *BODY, *CHANGE, Kind.NOT_BUILT, Kind.ID_IN_USE, Kind.QUOTA_EXCEEDED,
            Kind.IDEMPOTENCY_MISMATCH, Kind.TOO_MANY_REQUESTS, Kind.GONE,
        ),
    },
    openapi_extra={"security": security("jobs:write"), **body(JobRequest, examples.CREATE)},
)  # fmt: skip
async def create_job(
    request: Request, state: State, caller: Writer, idempotency_key: KeyHeader = None
) -> JSONResponse:
    """Only `schedule` and `target` are required.

    The same request under the same `Idempotency-Key` is answered with the job that it created.
    """
    document = await read_object(request)
    key = parse_key(idempotency_key, tenant=caller.tenant, call=CREATE_CALL, body=document)
    new = settle_new(
        parse_intake(document),
        caller,
        fingerprint=fingerprint(CREATE_CALL, document),
        key=key.key if key else None,
        now=state.clock(),
        settings=state.settings,
    )
    return await _create(state, new)


@router.get(
    "",
    operation_id="listJobs",
    summary="List jobs",
    response_model=JobPage,
    responses=problems(*ALWAYS, Kind.INVALID, Kind.DATABASE_UNAVAILABLE),
    openapi_extra={"security": security("jobs:read")},
)
async def list_jobs(state: State, caller: Reader, query: Annotated[JobQuery, Query()]) -> JSONResponse:
    """From the index, in an order that nothing created or deleted between two pages disturbs."""
    page = await state.index.list(
        caller.tenant,
        status=query.status or None,
        labels=query.labels(),
        target=query.target,
        outcome=query.outcome or None,
        q=query.q,
        group=query.group,
        sort=query.sort,
        limit=query.limit,
        cursor=query.cursor,
    )
    now = state.clock()
    return JSONResponse(
        {"items": [document_of_row(stored, now) for stored in page.items], "next_cursor": page.next_cursor}
    )


@router.get(
    "/{job_id}",
    operation_id="getJob",
    summary="Read a job",
    response_model=JobAnswer,
    responses={
        200: {"headers": ETAG},
        **problems(
            *ALWAYS, Kind.NOT_FOUND, Kind.DATABASE_UNAVAILABLE, Kind.SCHEDULER_UNAVAILABLE, Kind.NO_ANSWER
        ),
    },
    openapi_extra={"security": security("jobs:read")},
)
async def get_job(job_id: JobId, state: State, caller: Reader) -> JSONResponse:
    """Asks the job itself; when it does not answer within two seconds, `stale` is true."""
    found = await state.refs.find(state.temporal, caller.tenant, existing_id(job_id))
    return job_response(await present_document(state.temporal, found, state.clock()))


@router.put(
    "/{job_id}",
    operation_id="putJob",
    summary="Create or replace a job",
    response_model=JobAnswer,
    responses={
        200: {"description": "The job, its definition replaced.", "headers": ETAG},
        201: {"description": "The job, created.", "model": JobAnswer, "headers": CREATED},
        **problems(
            *ALWAYS, *BODY, *JOB_CHANGE, Kind.NOT_BUILT, Kind.REVISION_MISMATCH, Kind.ID_IN_USE,
            Kind.QUOTA_EXCEEDED, Kind.TOO_MANY_REQUESTS,
        ),
    },
    openapi_extra={"security": security("jobs:write"), **body(JobRequest, examples.REPLACE)},
)  # fmt: skip
async def put_job(
    job_id: JobId,
    request: Request,
    state: State,
    caller: Writer,
    if_match: IfMatchHeader = None,
    if_none_match: Annotated[
        str | None, Header(alias="If-None-Match", description="`*`: create, do not replace.")
    ] = None,
) -> JSONResponse:
    """Fields that answers add may be sent along; they are ignored. A replacement leaves a pause alone."""
    document = without_read_only(await read_object(request))
    wanted, absent = parse_if_match(if_match), wants_absence(if_none_match)
    intake = parse_intake({"id": job_id, **document})
    if intake.job != job_id:
        raise invalid("The id of a job cannot be changed; repeat the one in the address.", "/id")
    for last_try in (False, True):
        edited = await _replaced(state, caller, job_id, intake.definition, wanted, absent=absent)
        if edited is not None:
            return await _edited(state, caller, "replace", edited)
        new = settle_new(
            intake,
            caller,
            fingerprint=fingerprint(f"PUT /v1/jobs/{job_id}", document),
            key=None,
            now=state.clock(),
            settings=state.settings,
        )
        try:
            return await _create(state, new)
        except JobExists:
            if last_try:
                raise
    raise AssertionError("unreachable")


async def _replaced(
    state: AppState,
    caller: Principal,
    job_id: str,
    definition: JobDefinition,
    wanted: IfMatch | None,
    *,
    absent: bool,
) -> Edited | None:
    """None: there is no such job, so it is to be created. Raises 412 where a precondition says otherwise."""
    try:
        found = await state.refs.find(state.temporal, caller.tenant, job_id)
        if absent:
            await view_of(state.temporal, found)  # 404 if it is deleted, and only the index is behind
            raise ProblemError(
                Kind.REVISION_MISMATCH,
                "The job exists already; leave If-None-Match out to replace it, or choose another id.",
            )
        update_id = f"edit-{state.random_name()}"
        return await state.editing.replace(
            found, definition, if_match=wanted, by=caller.subject, update_id=update_id
        )
    except ProblemError as problem:
        if problem.kind is not Kind.NOT_FOUND:
            raise
    if wanted is not None:
        raise mismatch(None)
    return None


@router.patch(
    "/{job_id}",
    operation_id="patchJob",
    summary="Change a job",
    response_model=JobAnswer,
    responses={
        200: {"headers": ETAG},
        **problems(*ALWAYS, *BODY, *JOB_CHANGE, Kind.NOT_BUILT, Kind.REVISION_MISMATCH),
    },
    openapi_extra={
        "security": security("jobs:write"),
        **body(JobPatch, examples.PATCH, media_types=PATCH_TYPES),
    },
)
async def patch_job(
    job_id: JobId, request: Request, state: State, caller: Writer, if_match: IfMatchHeader = None
) -> JSONResponse:
    """A JSON merge patch, but `schedule` and `target` are replaced whole; `body: null` means no body."""
    found = await state.refs.find(state.temporal, caller.tenant, existing_id(job_id))
    patch = await read_object(request, media_types=PATCH_TYPES)
    edited = await state.editing.patch(
        found,
        patch,
        if_match=parse_if_match(if_match),
        by=caller.subject,
        update_id=f"edit-{state.random_name()}",
    )
    return await _edited(state, caller, "patch", edited)


@router.delete(
    "/{job_id}",
    operation_id="deleteJob",
    summary="Delete a job",
    response_model=DeletedAnswer,
    responses=problems(*ALWAYS, *CHANGE, Kind.INVALID, Kind.NOT_FOUND, Kind.REVISION_MISMATCH),
    openapi_extra={"security": security("jobs:write")},
)
async def delete_job(
    job_id: JobId,
    state: State,
    caller: Writer,
    query: Annotated[DeleteQuery, Query()],
    if_match: IfMatchHeader = None,
) -> JSONResponse:
    """The id is free at once. A run in flight finishes, or is cancelled with `running=cancel`."""
    found = await state.refs.find(state.temporal, caller.tenant, existing_id(job_id))
    now = state.clock()
    wanted = parse_if_match(if_match)
    revision = wanted.single() if wanted else None
    if wanted is not None and wanted.revisions is not None and revision is None:
        view = await view_of(state.temporal, found)
        known = view or found.stored
        revision = known.revision if known else 0
        wanted.check(revision)
    operation = f"delete-{state.random_name()}"
    actor = Actor(by=caller.subject, at=now, operation=operation)
    request = DeleteRequest(running=query.running, if_revision=revision, actor=actor)
    try:
        changed = await state.changes.change(found, UPDATE_DELETE, request, update_id=operation, now=now)
    except ProblemError as problem:
        if problem.kind is not Kind.JOB_LOST or not await _delete_lost(state, caller, found, wanted, now):
            raise
        return JSONResponse({"id": job_id, "in_flight": []})
    await state.audit.note(caller, "delete", job_id, changed.view.revision, None)
    return JSONResponse(
        {"id": job_id, "in_flight": [running.model_dump(mode="json") for running in changed.in_flight]}
    )


async def _delete_lost(
    state: AppState, caller: Principal, found: Found, wanted: IfMatch | None, now: datetime
) -> bool:
    """Whether it was the row of a job whose workflow was ended from outside, and is deleted now."""
    if found.stored is None:
        raise ProblemError(
            Kind.DATABASE_UNAVAILABLE,
            "The job's workflow was ended from outside, and the database, which holds all that is left to "
            "delete, does not answer; try again.",
            headers=LATER,
        )
    if wanted is not None:
        wanted.check(found.stored.revision)
    if not await bury_lost(state.temporal, state.index, found, now):
        return False
    state.refs.forget(caller.tenant, found.job)
    await state.audit.note(caller, "delete", found.job, found.stored.revision, None)
    return True


async def _edited(state: AppState, caller: Principal, operation: str, edited: Edited) -> JSONResponse:
    """A change that changes nothing is none, for the audit log too."""
    view = edited.view
    if view.revision != edited.before:
        await state.audit.note(caller, operation, view.job, edited.before, view.revision)
    return job_response(document_of_view(caller.tenant, view, state.clock()))


async def _create(state: AppState, new: NewJob) -> JSONResponse:
    reservation = await state.creation.create(state.temporal, new)
    job, location = reservation.job.job, {"Location": f"/v1/jobs/{reservation.job.job}"}
    if reservation.kind != "replay":
        started = initial_view(initial_state(reservation.job, paused=new.paused))
        return job_response(document_of_view(new.tenant, started, state.clock()), 201, **location)
    found = await state.refs.find(state.temporal, new.tenant, job)
    document = await present_document(state.temporal, found, state.clock())
    return job_response(document, 201, **location, **{"Idempotent-Replayed": "true"})
