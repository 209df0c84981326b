"""A backfill that was cancelled balances if it went no further, and is found if it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.faults.accounts import Account, Backfill, Row, Visit
from tests.faults.ledger import balance
from tests.faults.test_ledger import ANEW, ZERO, anew, progress

CANCELLED = progress(status="cancelled", total=3, remaining=2)
"""With one of three occurrences begun, which has succeeded."""


def cancelled(*told: Mapping[str, Any], named: Sequence[str] | None = (), at: float = 7,
              visits: Sequence[Visit] = (anew(),), rows: Sequence[Row] = (ANEW,)) -> Account:  # fmt: skip
    """The answer came at second ``at`` and named these keys; None: nobody knows what it named."""
    in_flight = None if named is None else [{"key": key, "state": "in_flight"} for key in named]
    one = Backfill(
        "b1", "all", [ZERO + second for second in (1, 2, 3)], told or (CANCELLED,),
        cancelled={**CANCELLED, "in_flight": in_flight}, cancelled_at=ZERO + at,
    )  # fmt: skip
    return Account("j", [], visits, rows, backfills=[one])


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(cancelled(), id="went-no-further"),
        pytest.param(cancelled(at=4.9, named=[ANEW.key]), id="named-what-came-behind-it"),
        pytest.param(cancelled(at=4.9, named=None), id="nobody-knows-what-it-named"),
    ],
)
def test_a_cancelled_backfill_balances(given: Account) -> None:
    assert balance([given]).findings == []


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        pytest.param("went on", cancelled(at=4.9), id="ran-what-the-answer-did-not-name"),
        pytest.param(
            "miscounted",
            cancelled(progress(status="cancelled", total=3, started=2, remaining=1)),
            id="began-more",
        ),
        pytest.param("miscounted", cancelled({**CANCELLED, "succeeded": 0}), id="ends-that-do-not-add-up"),
        pytest.param(
            "miscounted",
            cancelled(progress(total=3, started=3, succeeded=3)),
            id="done-though-it-was-answered-to-be-cancelled",
        ),
        pytest.param("miscounted", cancelled({**CANCELLED, "status": "running"}), id="running-still"),
    ],
)  # fmt: skip
def test_a_cancelled_backfill_does_not_balance(kind: str, given: Account) -> None:
    assert kind in {finding.kind for finding in balance([given]).findings}
