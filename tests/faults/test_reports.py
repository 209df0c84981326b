"""A report of a target that was taken must have been heeded, and one that was refused must not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.accounts import Row, Visit
from tests.faults.ledger import balance
from tests.faults.test_ledger import REPEATED, ZERO, account, row, visit

FAILED = row(1, "dead_lettered", (1, 1, "failed"))
TAKEN_OVER = row(1, "succeeded", (1, 1, "running"), (1, 2, "succeeded"))


def said(report: str | None, **more: Any) -> Visit:
    return replace(visit(1), report=report, **more)


@pytest.mark.parametrize(
    ("kinds", "series", "told"),
    [
        pytest.param(set(), [said("complete")], row(1), id="completed"),
        pytest.param(set(), [said("fail")], FAILED, id="failed"),
        pytest.param(set(), [said("refused"), visit(1, delivery=2, start=3)], TAKEN_OVER, id="refused"),
        pytest.param({"unheeded"}, [said("complete")], FAILED, id="completed-in-vain"),
        pytest.param({"unheeded"}, [said("fail")], row(1), id="failed-in-vain"),
        pytest.param({"unheeded"}, [said("refused")], row(1), id="refused-and-taken"),
        pytest.param(
            {"unheeded"}, [said("complete"), visit(1, delivery=2, start=3)], REPEATED, id="sent-again-though"
        ),
    ],
)
def test_reports(kinds: set[str], series: Sequence[Visit], told: Row) -> None:
    found = {finding.kind for finding in balance([account([1], series, [told])]).findings}
    assert found & {"unheeded"} == kinds


@pytest.mark.parametrize(
    ("count", "beat"),
    [pytest.param(1, 2.0, id="alive"), pytest.param(0, 1.0, id="silent"), pytest.param(0, None, id="mute")],
)
def test_a_lease_that_was_renewed_is_not_lost(count: int, beat: float | None) -> None:
    before = said(None, beat=None if beat is None else ZERO + beat)
    given = account([1], [before, visit(1, delivery=2, start=4.5)], [REPEATED])
    assert len(balance([given], lease=3).of_kind("reaped alive")) == count
