"""More runs at once than a limit allows are found, and those that only seem so are not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from tests.faults.accounts import Account, Backfill, Row, Visit
from tests.faults.crowds import Limit
from tests.faults.ledger import balance
from tests.faults.test_ledger import REPEATED, ZERO, account, key, row, visit

EVER = [(-math.inf, math.inf)]
THREE = [visit(1, lasts=9), visit(2, lasts=9), visit(3, lasts=9)]
ROWS = [row(1), row(2), row(3)]


def crowds(given: Sequence[Account], *limits: Limit) -> list[str]:
    found = balance(given, side_by_side=[one.job for one in given], limits=limits)
    return [finding.what for finding in found.of_kind("crowded")]


def places(*changes: tuple[float, float, int]) -> Limit:
    return Limit("it", [(ZERO + since, ZERO + until, most) for since, until, most in changes], {"j": EVER})


@pytest.mark.parametrize(
    ("count", "limit"),
    [
        pytest.param(0, places((0, 9, 3)), id="as-many-as-may"),
        pytest.param(1, places((0, 9, 2)), id="one-too-many"),
        pytest.param(2, places((0, 9, 1)), id="each-that-is-too-many"),
        pytest.param(0, places((0, 2.5, 3), (2, 3.1, 3), (3.05, 9, 1)), id="lowered-behind-it"),
        pytest.param(1, places((0, 2.5, 3), (2, 9, 1)), id="lowered-before-it-was-due"),
    ],
)
def test_no_more_run_at_once_than_may(count: int, limit: Limit) -> None:
    assert len(crowds([account([1, 2, 3], THREE, ROWS)], limit)) == count


def test_one_that_has_ended_unheard_is_none_of_them() -> None:
    again = [visit(1, lasts=9, status=None), visit(1, delivery=2, start=4), visit(5)]
    assert crowds([account([1, 5], again, [REPEATED, row(5)])], places((0, 9, 1))) == []
    apart = [again[0], visit(5)]
    assert len(crowds([account([1, 5], apart, [row(1), row(5)])], places((0, 9, 1)))) == 1


def test_a_retry_has_the_place_of_its_run() -> None:
    retried = [visit(1, status=500), visit(3, lasts=9), visit(1, attempt=2, start=4)]
    assert crowds([account([1, 3], retried, [row(1), row(3)])], places((0, 9, 1))) == []


@pytest.mark.parametrize(
    ("count", "since"),
    [pytest.param(1, 0, id="a-member"), pytest.param(0, 1.5, id="one-that-joined-later")],
)
def test_a_group_is_that_of_its_members(count: int, since: float) -> None:
    other = Account("k", [], [Visit("k", "acme/k:2026-12-01T09:00:01Z", 1, 1, ZERO + 1, ZERO + 9)], [])
    limit = Limit("group", [(0, math.inf, 1)], {"j": EVER, "k": [(ZERO + since, math.inf)]})
    assert len(crowds([account([2], [visit(2)], [row(2)]), other], limit)) == count


@pytest.mark.parametrize(
    ("count", "until"),
    [pytest.param(1, math.inf, id="a-member"), pytest.param(0, 3.5, id="one-that-has-left")],
)
def test_a_retry_needs_a_place_as_long_as_its_job_is_a_member(count: int, until: float) -> None:
    retried = [visit(1, status=500), visit(1, attempt=2, start=4, lasts=9)]
    other = Account("k", [], [Visit("k", "acme/k:2026-12-01T09:00:05Z", 1, 1, ZERO + 5, ZERO + 9)], [])
    limit = Limit("group", [(0, math.inf, 1)], {"j": [(-math.inf, ZERO + until)], "k": EVER})
    assert len(crowds([account([1], retried, [row(1)]), other], limit)) == count


@pytest.mark.parametrize(("count", "at_once"), [(0, 2), (1, 1)])
def test_a_backfill_has_its_own_limit(count: int, at_once: int) -> None:
    anew = [f"{key(second)}+b1" for second in (1, 2)]
    visits = [Visit("j", one, 1, 1, ZERO + 5 + n, ZERO + 9) for n, one in enumerate(anew)]
    rows = [Row(one, ZERO + 1 + n, ZERO + 1 + n, "succeeded", "backfill") for n, one in enumerate(anew)]
    told = {"status": "done", "total": 2, "started": 2, "succeeded": 2, "dead_lettered": 0, "cancelled": 0}
    one = Backfill("b1", "all", [ZERO + 1, ZERO + 2], [{**told, "remaining": 0}], at_once)
    given = Account("j", [], [*visits, visit(6, start=6.5)], rows, backfills=[one])
    assert len(crowds([given])) == count
