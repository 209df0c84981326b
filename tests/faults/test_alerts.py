"""What the alert receiver heard balances with the incidents, or it is said what does not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.faults.accounts import Account, Row
from tests.faults.alerts import IncidentRow, Message, tell, unopened


def message(id_: str = "inc_1", start: float = 1, status: int | None = 200, count: int = 1) -> Message:
    return Message(id_, {"id": "inc_1", "job": "j", "count": count}, start, status)


def incident(kind: str = "dead_letter", *, recovered: bool = False) -> IncidentRow:
    recovery = "delivered" if recovered else None
    return IncidentRow("inc_1", kind, "j", "delivered", recovery, recovered)


OVER = incident(recovered=True)


@pytest.mark.parametrize(
    ("incidents", "messages"),
    [
        pytest.param([incident()], [message()], id="open"),
        pytest.param([OVER], [message(), message("inc_1-recovered", 2)], id="over"),
        pytest.param(
            [OVER],
            [message(status=500), message(start=2), message("inc_1-recovered", 3, None),
             message("inc_1-recovered", 4)],
            id="tried-again",
        ),
        pytest.param([incident()], [message(), message(start=2)], id="told-twice"),
    ],
)  # fmt: skip
def test_it_balances(incidents: Sequence[IncidentRow], messages: Sequence[Message]) -> None:
    assert tell(incidents, messages) == []


@pytest.mark.parametrize(
    ("kind", "incidents", "messages"),
    [
        pytest.param("untold", [incident()], [], id="never-sent"),
        pytest.param("untold", [incident()], [message(status=500)], id="never-taken"),
        pytest.param("untold", [OVER], [message()], id="no-recovery"),
        pytest.param("reworded", [incident()], [message(), message(start=2, count=2)], id="reworded"),
        pytest.param("unheard of", [], [message()], id="no-row"),
        pytest.param(
            "recovered before it opened",
            [OVER],
            [message(start=2), message("inc_1-recovered", 1)],
            id="out-of-order",
        ),
        pytest.param(
            "recovered before it opened",
            [OVER],
            [message(status=500), message("inc_1-recovered", 2), message(start=3)],
            id="before-it-was-taken",
        ),
    ],
)  # fmt: skip
def test_it_does_not_balance(
    kind: str, incidents: Sequence[IncidentRow], messages: Sequence[Message]
) -> None:
    assert {finding.kind for finding in tell(incidents, messages)} == {kind}


@pytest.mark.parametrize(
    ("outcome", "reason", "missing"),
    [
        ("dead_lettered", None, 1),
        ("dead_lettered", "paused", 0),
        ("missed", None, 1),
        ("missed", "edited", 0),
        ("skipped", "overlap", 0),
    ],
)
def test_a_row_that_needs_somebody_has_opened_an_incident(
    outcome: str, reason: str | None, missing: int
) -> None:
    account = Account("j", [], [], [Row("acme/j:k", 1, 1, outcome, reason=reason)])
    assert len(unopened([account], [])) == missing
    assert unopened([account], [incident("missed"), incident("dead_letter")]) == []


@pytest.mark.parametrize(
    ("notice", "recovered", "recovery", "waits"),
    [
        ("pending", False, None, True),
        ("delivered", False, None, False),
        ("delivered", True, None, True),
        ("delivered", True, "pending", True),
        ("delivered", True, "delivered", False),
    ],
)
def test_what_is_still_to_come(notice: str, recovered: bool, recovery: str | None, waits: bool) -> None:
    assert IncidentRow("inc_1", "missed", "j", notice, recovery, recovered).waits == waits
