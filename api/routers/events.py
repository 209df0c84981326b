"""Server-sent events of a tenant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.access import Reader, State
from api.openapi import problems, security
from api.problems import Kind, invalid_parameter
from api.queries import EventQuery
from api.routers.documented import ALWAYS
from infra.database.errors import BadCursor

router = APIRouter(prefix="/v1/events", tags=["Events"])

MEDIA_TYPE = "text/event-stream"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class _EventStream(StreamingResponse):
    """Gives its place back when it has been sent, or cannot be sent any more.

    A server whose grace is over cancels what still runs: the stream then ends as it ends by itself,
    so that its client sees a whole answer and opens another.
    """

    media_type = MEDIA_TYPE

    def __init__(self, content: AsyncIterator[str], held: ExitStack) -> None:
        super().__init__(content, headers=_HEADERS)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            sending = asyncio.create_task(self.stream_response(send))
            leaving = asyncio.create_task(self.listen_for_disconnect(receive))
            try:
                await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    await sending
            except asyncio.CancelledError:
                await _cancelled(sending)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            finally:
                await _cancelled(sending, leaving)


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@router.get(
    "",
    operation_id="streamEvents",
    summary="Follow what happens",
    status_code=200,
    response_class=_EventStream,
    responses={
        200: {
            "description": "A stream of events.",
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
        },
        **problems(*ALWAYS, Kind.INVALID, Kind.BUSY, Kind.DATABASE_UNAVAILABLE),
    },
    openapi_extra={"security": security("jobs:read")},
)
async def stream_events(
    state: State,
    caller: Reader,
    query: Annotated[EventQuery, Query()],
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", description="Go on behind the event with this `id`.")
    ] = None,
) -> _EventStream:
    """Server-sent events: `execution` (an execution as it is now), `job` (a job after a change of its
    definition or status) and `job_deleted` (its `id` and `revision`).

    It begins with the present, or behind `Last-Event-ID`. Each event tells the latest state: what changes
    twice within half a second may be told once. A comment comes every 15 seconds. The stream ends when the
    token expires or the process stops; open it again with the last `id` then, and nothing is missed.
    """
    with ExitStack() as held:
        held.enter_context(state.streams.place(caller.tenant))
        try:
            begin = await state.streams.begin(last_event_id or None)
        except BadCursor:
            raise invalid_parameter(
                "Last-Event-ID", "No event has this id; leave it out to begin with the present."
            ) from None
        return _EventStream(state.streams.events(caller, begin, query.job), held.pop_all())
