"""The concurrency gate, as the table of docs/overlap.md."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import pytest

from tests.workflows.domain.states import at
from workflows.contracts.definition import Concurrency
from workflows.domain.gate import ActiveRun, Decision, admit, decide

GRACE = timedelta(seconds=90)
Policy = Literal["forbid", "allow", "replace", "queue"]
POLICIES: tuple[Policy, ...] = ("forbid", "allow", "replace", "queue")


def run(
    *, fires: float = 1, started: float = 1, ended: float | None = None, planned: bool = True
) -> ActiveRun:
    return ActiveRun(planned, at(fires), at(started), None if ended is None else at(ended))


REGULAR = run()
BY_HAND = run(planned=False)
LATE = run(fires=0, started=1.6)

FORBID: dict[str, tuple[float, Sequence[ActiveRun], Decision]] = {
    "nothing is active": (2, [], Decision.RUN),
    "its predecessor is active": (2, [REGULAR], Decision.SKIP),
    "its predecessor was active": (2, [run(ended=2.1)], Decision.SKIP),
    "due as the predecessor starts": (1, [run(fires=0, ended=2)], Decision.SKIP),
    "due as the predecessor ends": (2, [run(ended=2)], Decision.RUN),
    "due before the predecessor started": (1, [run(fires=0, started=1.1, ended=2)], Decision.RUN),
    "due before the predecessor started, which is active": (1, [run(started=1.1)], Decision.WAIT),
    "due after the predecessor's end": (3, [run(ended=2)], Decision.RUN),
    "a manual run is active": (2, [BY_HAND], Decision.WAIT),
    "a manual run was active": (2, [run(ended=3, planned=False)], Decision.RUN),
    "started at its grace": (3, [run(started=2.5, ended=4)], Decision.SKIP),
    "started later than its grace, active": (3, [run(started=2.6)], Decision.WAIT),
    "started later than its grace, ended": (3, [run(started=2.6, ended=4)], Decision.RUN),
    "one of two swallows it": (2, [BY_HAND, REGULAR], Decision.SKIP),
    "two that do not": (2, [BY_HAND, LATE], Decision.WAIT),
}


@pytest.mark.parametrize(("due", "active", "decision"), FORBID.values(), ids=FORBID)
def test_what_forbid_does_with_an_occurrence(
    due: float, active: Sequence[ActiveRun], decision: Decision
) -> None:
    assert decide(Concurrency(), at(due), active, GRACE) is decision


TABLE: dict[str, tuple[Policy, Sequence[ActiveRun], Decision]] = {
    "queue, nothing active": ("queue", [], Decision.RUN),
    "queue, a regular run": ("queue", [REGULAR], Decision.WAIT),
    "queue, a manual run": ("queue", [BY_HAND], Decision.WAIT),
    "queue, a run that has ended": ("queue", [run(ended=2.5)], Decision.RUN),
    "replace, nothing active": ("replace", [], Decision.RUN),
    "replace, a regular run": ("replace", [REGULAR], Decision.REPLACE),
    "replace, a run that started late": ("replace", [LATE], Decision.REPLACE),
    "replace, a manual run": ("replace", [BY_HAND], Decision.WAIT),
    "replace, both": ("replace", [REGULAR, BY_HAND], Decision.WAIT),
    "replace, a manual run that has ended": ("replace", [run(ended=2.5, planned=False)], Decision.RUN),
    "allow, nothing active": ("allow", [], Decision.RUN),
    "allow, one of two": ("allow", [REGULAR], Decision.BESIDE),
    "allow, a manual run": ("allow", [BY_HAND], Decision.BESIDE),
    "allow, two of two": ("allow", [REGULAR, BY_HAND], Decision.WAIT),
    "allow, more than it allows now": ("allow", [REGULAR, BY_HAND, LATE], Decision.WAIT),
}


@pytest.mark.parametrize(("policy", "active", "decision"), TABLE.values(), ids=TABLE)
def test_what_a_policy_does_with_an_occurrence(
    policy: Policy, active: Sequence[ActiveRun], decision: Decision
) -> None:
    assert decide(Concurrency(policy=policy, limit=2), at(2), active, GRACE) is decision


ASKED: dict[Policy, Decision] = {
    "forbid": Decision.SKIP,
    "queue": Decision.WAIT,
    "replace": Decision.REPLACE,
    "allow": Decision.BESIDE,
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("active", [REGULAR, BY_HAND], ids=["regular", "manual"])
def test_a_manual_run_obeys_the_policy(policy: Policy, active: ActiveRun) -> None:
    assert admit(Concurrency(policy=policy), [active]) is ASKED[policy]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_manual_run_meets_nothing(policy: Policy) -> None:
    assert admit(Concurrency(policy=policy), []) is Decision.RUN


def test_a_manual_run_waits_where_all_places_are_taken() -> None:
    assert admit(Concurrency(policy="allow", limit=1), [REGULAR]) is Decision.WAIT
