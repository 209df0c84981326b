"""Concurrency groups: how many runs of several jobs may be under way at once."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse, Response

from api import examples
from api.access import Reader, State, Writer
from api.body import read_object
from api.definitions import parse_model
from api.groups import GroupAnswer, GroupListed, GroupPage, no_such_group
from api.openapi import body, problems, security
from api.problems import Kind, invalid_parameter
from api.queries import GroupQuery
from api.requests import GroupBody
from api.routers.documented import ALWAYS, BODY, CHANGE
from workflows.contracts.actor import Actor
from workflows.contracts.names import GROUP_PATTERN

router = APIRouter(prefix="/v1/groups", tags=["Groups"])

GroupName = Annotated[str, Path(description=f"The group's name: `{GROUP_PATTERN}`.", examples=["warehouse"])]


@router.get(
    "",
    operation_id="listGroups",
    summary="List concurrency groups",
    response_model=GroupPage,
    responses=problems(*ALWAYS, Kind.INVALID, Kind.DATABASE_UNAVAILABLE),
    openapi_extra={"security": security("jobs:read")},
)
async def list_groups(state: State, caller: Reader, query: Annotated[GroupQuery, Query()]) -> JSONResponse:
    """Those that jobs name and those that were given a limit, by name."""
    page = await state.groups.index.list(caller.tenant, limit=query.limit, cursor=query.cursor)
    items = [
        GroupListed(name=group.name, limit=group.limit, member_count=group.members) for group in page.items
    ]
    answer = GroupPage(items=items, next_cursor=page.next_cursor)
    return JSONResponse(answer.model_dump(mode="json"))


@router.get(
    "/{name}",
    operation_id="getGroup",
    summary="Read a concurrency group",
    response_model=GroupAnswer,
    responses=problems(*ALWAYS, Kind.NOT_FOUND, Kind.DATABASE_UNAVAILABLE),
    openapi_extra={"security": security("jobs:read")},
)
async def get_group(name: GroupName, state: State, caller: Reader) -> JSONResponse:
    """Its jobs, the runs that have a place, and those that wait for one.

    Asks the group itself; when it does not answer within two seconds, `stale` is true.
    """
    if re.fullmatch(GROUP_PATTERN, name) is None:
        raise no_such_group(name)
    answer = await state.groups.read(caller.tenant, name)
    return JSONResponse(answer.model_dump(mode="json"))


@router.put(
    "/{name}",
    operation_id="putGroup",
    summary="Set the limit of a concurrency group",
    response_model=GroupAnswer,
    responses=problems(*ALWAYS, *BODY, *CHANGE, Kind.QUOTA_EXCEEDED),
    openapi_extra={"security": security("jobs:write"), **body(GroupBody, examples.GROUP)},
)
async def put_group(name: GroupName, request: Request, state: State, caller: Writer) -> JSONResponse:
    """A group that nobody gave a limit has one place. A lower limit takes no run's place away."""
    document = await read_object(request)
    asked = parse_model(GroupBody, document)
    if re.fullmatch(GROUP_PATTERN, name) is None:
        raise invalid_parameter("name", f"A group's name matches `{GROUP_PATTERN}`, as the id of a job does.")
    operation = state.random_name()
    actor = Actor(by=caller.subject, at=state.clock(), operation=operation)
    answer = await state.groups.limit(caller.tenant, name, asked.limit, actor)
    await state.audit.note(caller, f"limit group {name}", None, None, None, change=f"group {operation}")
    return JSONResponse(answer.model_dump(mode="json"))


@router.delete(
    "/{name}",
    operation_id="deleteGroup",
    summary="Delete a concurrency group",
    status_code=204,
    response_class=Response,
    responses={
        204: {"description": "The group is gone."},
        **problems(*ALWAYS, *CHANGE, Kind.NOT_FOUND, Kind.GROUP_IN_USE),
    },
    openapi_extra={"security": security("jobs:write")},
)
async def delete_group(name: GroupName, state: State, caller: Writer) -> Response:
    """A 409 while jobs name it, or runs have or want a place in it."""
    if re.fullmatch(GROUP_PATTERN, name) is None:
        raise no_such_group(name)
    operation = state.random_name()
    actor = Actor(by=caller.subject, at=state.clock(), operation=operation)
    await state.groups.delete(caller.tenant, name, actor)
    await state.audit.note(caller, f"delete group {name}", None, None, None, change=f"group {operation}")
    return Response(status_code=204)
