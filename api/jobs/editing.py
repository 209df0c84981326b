"""PUT and PATCH: what a change means for the definition that the job has."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from api.clock import Clock
from api.connection import Connection
from api.definitions import parse_definition
from api.jobs.answers import READ_ONLY, definition_document
from api.jobs.changes import Changes, Turn
from api.jobs.merge import merge
from api.jobs.reading import may_be_over, view_of
from api.jobs.refs import Found
from api.jobs.rules import settle
from api.preconditions import IfMatch
from api.problems import FieldError, Kind, ProblemError, invalid
from infra.settings import Settings
from workflows.contracts.actor import Actor
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import EditRequest, JobView
from workflows.contracts.names import UPDATE_EDIT

ATTEMPTS = 4
"""How often a patch without If-Match is made again when other processes changed the job meanwhile."""
SETTLED_WITHIN_S = 1.0
"""How long an edit waits for a job to see that nothing is left of its schedule."""
LOOK_AGAIN_S = 0.03


@dataclass(frozen=True, slots=True)
class Edited:
    """The job after an edit; ``before`` is the revision it had, the same if nothing was changed."""

    view: JobView
    before: int


class Editing:
    def __init__(self, connection: Connection, changes: Changes, settings: Settings, clock: Clock) -> None:
        self._connection = connection
        self._changes = changes
        self._settings = settings
        self._clock = clock

    async def patch(
        self, found: Found, patch: dict[str, Any], *, if_match: IfMatch | None, by: str, update_id: str
    ) -> Edited:
        """The job after the patch. A patch that changes nothing is no change, and gives no revision."""
        asked = without_identity(patch, found.job)
        _refuse_read_only(asked)
        async with self._changes.turn(found) as turn:
            for attempt in range(ATTEMPTS):
                view = await self._view(turn, if_match)
                wanted = parse_definition(merge(definition_document(view.definition), asked))
                try:
                    # Merged over this revision, so it must not be applied over another one.
                    return await self._edit(
                        turn, view, wanted, revision=view.revision, by=by, update_id=f"{update_id}-{attempt}"
                    )
                except ProblemError as problem:
                    if problem.kind is not Kind.REVISION_MISMATCH or if_match is not None:
                        raise
        raise ProblemError(
            Kind.BUSY,
            "Others keep changing the job, so the patch was not applied; send it again.",
            headers={"Retry-After": "1"},
        )

    async def replace(
        self, found: Found, wanted: JobDefinition, *, if_match: IfMatch | None, by: str, update_id: str
    ) -> Edited:
        """The job after its definition is replaced."""
        async with self._changes.turn(found) as turn:
            view = await self._view(turn, if_match)
            strict = if_match is not None and if_match.revisions is not None
            revision = view.revision if strict else None
            return await self._edit(turn, view, wanted, revision=revision, by=by, update_id=update_id)

    async def _view(self, turn: Turn, if_match: IfMatch | None) -> JobView:
        view = await turn.view()
        if if_match is not None:
            if_match.check(view.revision)
        return view

    async def _edit(
        self,
        turn: Turn,
        view: JobView,
        wanted: JobDefinition,
        *,
        revision: int | None,
        by: str,
        update_id: str,
    ) -> Edited:
        now = self._clock()
        definition = settle(
            wanted,
            tenant=turn.found.tenant,
            job=turn.found.job,
            now=now,
            settings=self._settings,
            stored=view.definition,
        )
        if definition == view.definition:
            return Edited(view, view.revision)
        actor = Actor(by=by, at=now, operation=update_id)
        request = EditRequest(definition=definition, if_revision=revision, reaches_back=True, actor=actor)
        changed = await turn.change(UPDATE_EDIT, request, update_id=update_id, now=now)
        after = changed.view.revision
        settled = await self._settled(turn, changed.view)
        # Others may have changed the job since it was looked at; an edit raises its revision by one.
        return Edited(settled, after if after == view.revision else after - 1)

    async def _settled(self, turn: Turn, view: JobView) -> JobView:
        """The job once it knows whether it has anything left to do.

        An edit makes it plan anew, and until it has it says that it is active. Only a job that seems to
        have no occurrence left is worth the wait; without its word the answer is what it said last.
        """
        loop = asyncio.get_running_loop()
        until = min(turn.until, loop.time() + SETTLED_WITHIN_S)
        while may_be_over(view, self._clock()) and loop.time() < until:
            await asyncio.sleep(LOOK_AGAIN_S)
            seen = await view_of(self._connection, turn.found)
            if seen is None or seen.revision != view.revision:
                break
            view = seen
        return view


def without_identity(document: dict[str, Any], job: str) -> dict[str, Any]:
    """The definition in a document: its id must be the one of the address, ``paused`` is left alone."""
    if "id" in document and document["id"] != job:
        raise invalid(
            "The id of a job cannot be changed: leave it out, or repeat the one in the address.", "/id"
        )
    if not isinstance(document.get("paused", False), bool):
        raise invalid("`paused` is true or false; it is left as it is here.", "/paused")
    return {name: value for name, value in document.items() if name not in ("id", "paused")}


def without_read_only(document: dict[str, Any]) -> dict[str, Any]:
    """A whole answer, changed and sent back: what answers add is left out."""
    return {name: value for name, value in document.items() if name not in READ_ONLY}


def _refuse_read_only(patch: dict[str, Any]) -> None:
    found = sorted(READ_ONLY & patch.keys())
    if found:
        raise ProblemError(
            Kind.INVALID,
            f"`{found[0]}` cannot be patched.",
            errors=[FieldError(pointer=f"/{name}", detail=_how_else(name)) for name in found],
        )


def _how_else(name: str) -> str:
    if name in ("status", "pause"):
        return "It cannot be patched; use `POST …/pause` and `POST …/resume`."
    return "It cannot be patched: it is what the service found out."
