"""The ledger balances where all is well and says what is wrong where it is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.faults.accounts import Account, Backfill, Row, Visit
from tests.faults.ledger import balance

ZERO = datetime(2026, 12, 1, 9, tzinfo=UTC).timestamp()


def key(second: int) -> str:
    return f"acme/j:2026-12-01T09:00:{second:02}Z"


def visit(second: int, *, attempt: int = 1, delivery: int = 1, start: float | None = None,
          lasts: float | None = 0.5, status: int | None = 200) -> Visit:  # fmt: skip
    begun = ZERO + (second if start is None else start)
    end = None if lasts is None else begun + lasts
    return Visit("j", key(second), attempt, delivery, begun, end, status)


def row(second: int, outcome: str = "succeeded", *attempts: tuple[int, int, str], last: int | None = None,
        count: int = 1, reason: str | None = None) -> Row:  # fmt: skip
    if outcome == "succeeded" and not attempts:
        attempts = ((1, 1, "succeeded"),)
    until = ZERO + (second if last is None else last)
    return Row(key(second), ZERO + second, until, outcome, reason=reason, count=count, attempts=attempts)


def account(planned: Sequence[int], visits: Sequence[Visit], rows: Sequence[Row]) -> Account:
    return Account("j", [ZERO + second for second in planned], visits, rows)


TWICE = ((1, 2, "succeeded"),)
REPEATED = row(1, "succeeded", *TWICE)


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        pytest.param(account([1, 2], [visit(1), visit(2)], [row(1), row(2)]), {}, id="plain"),
        pytest.param(
            account(
                [1, 2, 3, 4],
                [visit(1, lasts=2.5), visit(4)],
                [row(1), row(2, "skipped", last=3, count=2), row(4)],
            ),
            {"skipped": 2},
            id="stretch",
        ),
        pytest.param(
            account([1], [visit(1, status=None), visit(1, delivery=2, start=3)], [REPEATED]),
            {"again": 1},
            id="delivered-again",
        ),
        pytest.param(
            account(
                [1],
                [visit(1, status=500), visit(1, attempt=2, start=4)],
                [row(1, "succeeded", (1, 1, "failed"), (2, 1, "succeeded"))],
            ),
            {"retries": 1},
            id="retried",
        ),
        pytest.param(
            account([1], [visit(1, delivery=3)], [row(1, "succeeded", (1, 3, "succeeded"))]),
            {},
            id="deliveries-that-never-arrived",
        ),
        pytest.param(
            account([1], [visit(1, status=400)], [row(1, "dead_lettered", (1, 1, "failed"))]),
            {"dead_lettered": 1},
            id="dead-letter",
        ),
        pytest.param(
            account([1, 2], [], [row(1, "missed", last=5, count=5)]),
            {"missed": 5},
            id="a-stretch-past-the-plan",
        ),
        pytest.param(
            account([1], [visit(1), visit(2)], [row(1), row(2)]), {"deliveries": 2}, id="a-run-past-the-plan"
        ),
    ],
)  # fmt: skip
def test_it_balances(given: Account, counts: dict[str, int]) -> None:
    found = balance([given])
    assert found.findings == []
    assert found.named == []
    assert {name: getattr(found, name) for name in counts} == counts


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        pytest.param("lost", account([1, 2], [visit(1)], [row(1)]), id="no-row"),
        pytest.param("lost", account([1], [], [row(1)]), id="a-success-that-never-arrived"),
        pytest.param("lost", account([1], [visit(1, status=500)], [row(1)]), id="a-success-of-a-failure"),
        pytest.param("lost", account([1], [visit(1)], [REPEATED]), id="another-delivery"),
        pytest.param(
            "lost", account([1, 2, 3], [], [row(1, "missed", last=3, count=2)]), id="a-stretch-counts-too-few"
        ),
        pytest.param(
            "lost", account([1, 2, 4], [], [row(1, "missed", last=2, count=3), row(4, "missed")]),
            id="a-stretch-counts-too-many",
        ),
        pytest.param("lost", Account("j", [], [], [], asked=["acme/j:manual-1"]), id="an-accepted-trigger"),
        pytest.param("unrecorded", account([], [visit(1)], []), id="unrecorded"),
        pytest.param("contradicted", account([1], [visit(1)], [row(1, "skipped")]), id="run-though-skipped"),
        pytest.param("unfinished", account([1], [visit(1)], [row(1, "running")]), id="unfinished"),
        pytest.param("early", account([1], [visit(1, start=0.9)], [row(1)]), id="early"),
        pytest.param(
            "unrecognisable",
            account([1], [visit(1), visit(1, start=3)], [row(1)]),
            id="the-same-delivery-twice",
        ),
        pytest.param(
            "unrecognisable",
            account([1], [visit(1, delivery=2), visit(1, start=3)], [REPEATED]),
            id="a-delivery-that-came-back-from-the-dead",
        ),
        pytest.param(
            "overlap", account([1, 2], [visit(1, lasts=1.5), visit(2)], [row(1), row(2)]), id="side-by-side"
        ),
        pytest.param(
            "overlap", account([1, 2], [visit(1, lasts=None), visit(2)], [row(1), row(2)]), id="open-ended"
        ),
    ],
)  # fmt: skip
def test_it_does_not_balance(kind: str, given: Account) -> None:
    assert kind in {finding.kind for finding in balance([given]).findings}


@pytest.mark.parametrize(
    ("second", "rows"),
    [
        pytest.param(visit(1, delivery=2, start=4), [REPEATED], id="by-its-redelivery"),
        pytest.param(visit(5), [row(1, "succeeded", (1, 2, "succeeded")), row(5)], id="by-the-history"),
        pytest.param(visit(5), [row(1, "dead_lettered", reason="leases_lost"), row(5)], id="by-its-end"),
    ],
)  # fmt: skip
def test_an_overlap_with_a_delivery_whose_lease_was_lost_is_named(second: Visit, rows: list[Row]) -> None:
    found = balance([account([1], [visit(1, lasts=9), second], rows)])
    assert found.of_kind("overlap") == []
    [name] = found.named
    assert name.startswith(f"lease of delivery 1 lost: {key(1)}:1 delivery 1")


def test_a_run_that_was_stopped_while_its_worker_stood_still_is_named() -> None:
    given = account([1, 2], [visit(1, lasts=9, status=None), visit(2)], [row(1, "replaced"), row(2)])
    assert len(balance([given]).of_kind("overlap")) == 1
    found = balance([given], frozen=[(ZERO + 1.5, ZERO + 9)])
    assert (found.findings, len(found.named)) == ([], 1)


def test_two_jobs_of_a_group_exclude_each_other_and_those_side_by_side_do_not() -> None:
    other = Account("k", [], [Visit("k", "acme/k:manual-1", 1, 1, ZERO + 1.2, ZERO + 2)], [])
    both = [account([1], [visit(1)], [row(1)]), other]
    assert balance(both).of_kind("overlap") == []
    assert len(balance(both, groups=[("j", "k")]).of_kind("overlap")) == 1
    two = [account([1, 2], [visit(1, lasts=1.5), visit(2)], [row(1), row(2)])]
    assert balance(two, side_by_side=["j"]).findings == []


def test_a_row_is_read_from_an_answer_of_the_api() -> None:
    answer = {
        "key": key(1), "scheduled_time": "2026-12-01T09:00:01Z", "last_scheduled_time": None,
        "outcome": "succeeded", "trigger": "schedule", "reason": None, "count": 1,
        "attempts": [{"attempt": 1, "delivery": 2, "outcome": "succeeded", "error": None}],
    }  # fmt: skip
    assert Row.of(answer) == REPEATED
    assert Row.of({**answer, "last_scheduled_time": "2026-12-01T09:00:09Z"}).last == ZERO + 9


# -- what is run again -----------------------------------------------------------------------------

AGAIN = replace(row(1), trigger="backfill")
"""The first occurrence under its own key."""
ANEW = Row(f"{key(1)}+b1", ZERO + 1, ZERO + 1, "succeeded", "backfill", attempts=((1, 1, "succeeded"),))


def anew(start: float = 5, lasts: float = 0.5) -> Visit:
    return Visit("j", ANEW.key, 1, 1, ZERO + start, ZERO + start + lasts, 200)


def progress(**counts: Any) -> dict[str, Any]:
    full = {"status": "done", "total": 1, "started": 1, "succeeded": 1, "dead_lettered": 0, "cancelled": 0}
    return {**full, "remaining": 0, **counts}


def filled(only: str = "all", *told: dict[str, Any], visits: Sequence[Visit] = (anew(),),
           rows: Sequence[Row] = (ANEW,)) -> Account:  # fmt: skip
    backfill = Backfill("b1", only, [ZERO + 1], told or (progress(),))
    return Account("j", [], visits, rows, backfills=[backfill])


WAITING = progress(status="running", started=0, succeeded=0, remaining=1)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(filled(), id="all"),
        pytest.param(filled("all", WAITING, progress()), id="followed"),
        pytest.param(filled("missing", visits=[visit(1, start=5)], rows=[AGAIN]), id="missing"),
        pytest.param(
            filled("missing", progress(total=0, started=0, succeeded=0)), id="none-missing-since-it-ran-anew"
        ),
        pytest.param(
            filled("all", progress(succeeded=0, cancelled=1), visits=[],
                   rows=[replace(ANEW, outcome="replaced")]),
            id="replaced-before-it-came",
        ),
    ],
)  # fmt: skip
def test_a_backfill_balances(given: Account) -> None:
    assert balance([given]).findings == []


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        pytest.param("not backfilled", filled("all", visits=[], rows=[]), id="nothing-of-it"),
        pytest.param("not backfilled", filled("missing", visits=[], rows=[]), id="nothing-of-the-missing"),
        pytest.param(
            "not backfilled", filled("all", visits=[visit(1, start=5)], rows=[AGAIN]), id="under-another-key"
        ),
        pytest.param(
            "not delivered",
            filled("all", progress(succeeded=0, dead_lettered=1), visits=[],
                   rows=[replace(ANEW, outcome="dead_lettered", attempts=((1, 1, "failed"),))]),
            id="never-sent",
        ),
        pytest.param("miscounted", filled("all", WAITING), id="not-done"),
        pytest.param("miscounted", filled("all", progress(succeeded=0)), id="ends-that-do-not-add-up"),
        pytest.param("miscounted", filled("all", progress(), progress(started=0, succeeded=0)), id="back"),
        pytest.param("miscounted", filled("all", progress(), WAITING), id="more-is-left"),
        pytest.param("miscounted", filled("all", progress(total=2, started=2, succeeded=2)), id="too-many"),
        pytest.param("early", filled("all", visits=[anew(0.5, 0.1)]), id="early"),
        pytest.param(
            "overlap",
            replace(filled(), visits=[anew(), visit(5)], rows=[ANEW, row(5)]),
            id="beside-the-schedule",
        ),
    ],
)  # fmt: skip
def test_a_backfill_does_not_balance(kind: str, given: Account) -> None:
    assert kind in {finding.kind for finding in balance([given]).findings}


def test_an_occurrence_of_a_stretch_that_is_backfilled_is_still_one_of_the_stretch() -> None:
    stretch = row(1, "skipped", last=3, count=3)
    given = replace(
        account([1, 2, 3], [visit(1, start=5)], [replace(stretch, key="acme/j:skipped-1"), AGAIN])
    )
    assert balance([given]).findings == []
    # One that had failed before it was backfilled is none of the stretch around it.
    assert balance([replace(given, rows=[replace(given.rows[0], count=2), AGAIN])]).findings == []
    assert len(balance([replace(given, rows=[replace(given.rows[0], count=1), AGAIN])]).of_kind("lost")) > 0
    assert len(balance([replace(given, rows=[replace(given.rows[0], count=4), AGAIN])]).of_kind("lost")) > 0


FAILED = row(1, "dead_lettered", (1, 1, "failed"))
REDRIVEN = replace(row(1, "succeeded", (1, 1, "failed"), (2, 1, "succeeded")), trigger="redrive")
OPEN = {key(1): "open"}
TWO = (visit(1, status=500), visit(1, attempt=2, start=5))


def redriven(visits: Sequence[Visit], last: Row, letters: dict[str, str] | None = None) -> Account:
    return replace(account([1], visits, [last]), redriven={key(1): 1}, letters=letters)


@pytest.mark.parametrize(
    ("kinds", "given"),
    [
        pytest.param(set(), redriven(TWO, REDRIVEN, {}), id="redriven"),
        pytest.param(set(), redriven(TWO[:1], replace(FAILED, outcome="replaced"), OPEN), id="stopped"),
        pytest.param(set(), redriven(TWO, replace(FAILED, trigger="redrive"), OPEN), id="failed-again"),
        pytest.param({"not redriven"}, redriven(TWO[:1], FAILED, OPEN), id="never-ran-again"),
        pytest.param({"letter"}, redriven(TWO, REDRIVEN, OPEN), id="open-though-it-succeeded"),
        pytest.param({"letter"}, redriven(TWO, FAILED, {}), id="closed-though-it-failed"),
        pytest.param({"letter"}, redriven(TWO, FAILED, {key(1): "redriving"}), id="never-told-of-its-end"),
        pytest.param(
            {"unrecognisable"},
            redriven((TWO[0], visit(1, start=3), TWO[1]), REDRIVEN, {}),
            id="an-attempt-used-twice",
        ),
    ],
)  # fmt: skip
def test_a_redrive_goes_on_behind_the_attempts_that_were_made(kinds: set[str], given: Account) -> None:
    assert {finding.kind for finding in balance([given]).findings} == kinds


def test_a_run_that_was_asked_for_and_never_came_is_found() -> None:
    never = Row("acme/j:manual-1", ZERO, ZERO, "dead_lettered", "manual")
    given = Account("j", [], [], [never], asked=[never.key])
    assert [finding.kind for finding in balance([given]).findings] == ["not delivered"]
    assert balance([replace(given, rows=[replace(never, reason="leases_lost")])]).findings == []


def test_an_end_that_a_redrive_has_written_over_still_explains_an_overlap() -> None:
    """A lease that was lost, and a stop, are told by the attempt when the row tells of a later run."""
    over = [visit(1, lasts=9, status=None), visit(5), visit(1, attempt=2, start=12)]
    lost = replace(REDRIVEN, lost=frozenset({1}))
    assert len(balance([account([1, 5], over, [lost, row(5)])]).named) == 1
    assert len(balance([account([1, 5], over, [REDRIVEN, row(5)])]).of_kind("overlap")) == 1
    stopped = replace(REDRIVEN, attempts=((1, 1, "cancelled"), (2, 1, "succeeded")))
    given = account([1, 5], over, [stopped, row(5)])
    assert len(balance([given], frozen=[(ZERO + 4, ZERO + 9)]).named) == 1
