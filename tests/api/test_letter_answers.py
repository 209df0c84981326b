"""A dead letter whose question to its job went unanswered is asked anew, not given the same answer again."""

from __future__ import annotations

import types
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from api.connection import Connection
from api.letters import Letters
from api.problems import ProblemError
from workflows.contracts import failures
from workflows.contracts.actor import Actor
from workflows.contracts.dead_letter import DiscardLetter


class Asked:
    """A client whose updates end as told, by their order. An ended update has its answer for good."""

    def __init__(self, *ends: str | None) -> None:
        self.ends = list(ends)
        self.answers: dict[str, str | None] = {}

    def get_workflow_handle(self, _: str) -> Asked:
        return self

    async def client(self) -> Asked:
        return self

    async def execute_update(self, _: str, __: object, *, id: str, **___: object) -> str:
        if id not in self.answers:
            self.answers[id] = self.ends.pop(0)
        if (kind := self.answers[id]) is not None:
            raise WorkflowUpdateFailedError(ApplicationError("no", type=kind))
        return "done"


def letters(asked: Asked) -> Letters:
    return cast(Letters, types.SimpleNamespace(_connection=cast(Connection, asked)))


async def ask(asked: Asked) -> Any:
    request = DiscardLetter(actor=Actor(by="somebody", at=datetime.now(UTC), operation="op"))
    return await Letters._send(letters(asked), "acme/report:x", "redrive", request, str, "redrive-op")


async def test_a_repeat_is_not_answered_by_an_update_that_has_ended_without_an_answer() -> None:
    asked = Asked(failures.NO_ANSWER, failures.NO_ANSWER, None)
    with pytest.raises(ProblemError) as refused:
        await ask(asked)
    assert refused.value.kind.status == 503
    assert await ask(asked) == "done"
    assert len(asked.answers) == 3


async def test_another_refusal_stands() -> None:
    asked = Asked("Other", None)
    with pytest.raises((ProblemError, WorkflowUpdateFailedError)):
        await ask(asked)
    assert len(asked.answers) == 1
