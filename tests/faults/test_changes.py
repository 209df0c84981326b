"""Changes of a job balance where they counted, and each account says so where one did not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.accounts import Account, Row, Visit
from tests.faults.changes import Changes, Deleted, Paused, Period, Skipped, Version
from tests.faults.ledger import balance
from tests.faults.test_ledger import ZERO, key, row, visit

ALWAYS = Period(ZERO, 1, ZERO, ZERO)


def changed(visits: Sequence[Visit], rows: Sequence[Row], *, until: float = 9, **changes: Any) -> Account:
    made = Changes(**{"periods": [ALWAYS], **changes})
    planned, perhaps = made.planned(ZERO + until, rows), made.perhaps(ZERO + until)
    return Account("j", planned, visits, rows, perhaps=perhaps, changes=made)


def ran(*seconds: int, **of_each: Any) -> tuple[list[Visit], list[Row]]:
    return [visit(second, **of_each) for second in seconds], [row(second) for second in seconds]


def kinds(given: Account) -> set[str]:
    return {finding.kind for finding in balance([given]).findings}


# -- schedules -------------------------------------------------------------------------------------

MOVED = Changes([ALWAYS])
MOVED.move(Period(ZERO, 5, ZERO + 3.2, ZERO + 5.5))
"""Each second, and from 3.2 s on each five; the edit was answered at 5.5 s."""


@pytest.mark.parametrize(
    ("expected", "seconds"),
    [
        pytest.param(set(), (1, 2, 3), id="nothing-of-the-time-in-between"),
        pytest.param(set(), (1, 2, 3, 4, 5), id="the-old-one-until-the-answer"),
        pytest.param({"lost"}, (1, 2), id="not-all-of-the-old-one"),
        pytest.param({"unplanned"}, (1, 2, 3, 6), id="the-old-one-behind-the-answer"),
    ],
)
def test_a_schedule_that_was_edited(expected: set[str], seconds: tuple[int, ...]) -> None:
    assert kinds(changed(*ran(*seconds), until=8, periods=MOVED.periods)) == expected


def test_the_schedule_of_an_edit_must_run_behind_its_answer_and_not_before_it() -> None:
    assert MOVED.planned(ZERO + 16, []) == [ZERO + second for second in (1, 2, 3, 10, 15)]
    assert MOVED.perhaps(ZERO + 16) == [ZERO + 4, ZERO + 5]
    assert kinds(changed(*ran(1, 2, 3), until=12, periods=MOVED.periods)) == {"lost"}


def test_what_may_have_been_due_may_be_counted_in_a_stretch() -> None:
    for expected, counts in ((set[str](), (2, 3, 4)), ({"lost"}, (1, 5))):
        for count in counts:
            rows = [row(1), row(2, "skipped", last=5, count=count), row(10)]
            given = changed([visit(1), visit(10)], rows, until=12, periods=MOVED.periods)
            assert kinds(given) == expected, count


# -- pauses and skips ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "pause"),
    [
        pytest.param({"paused"}, Paused(ZERO + 0.9, frozenset(), ZERO + 3), id="ran"),
        pytest.param(set(), Paused(ZERO + 0.9, frozenset({key(1)}), ZERO + 3), id="was-named"),
        pytest.param(set(), Paused(ZERO + 1.1, frozenset(), ZERO + 3), id="had-come-before"),
        pytest.param(set(), Paused(ZERO + 0.1, frozenset(), ZERO + 0.9), id="had-been-resumed"),
    ],
)
def test_what_a_pause_has_stopped_does_not_come(expected: set[str], pause: Paused) -> None:
    assert kinds(changed(*ran(1), until=1, pauses=[pause])) == expected


def test_what_is_run_again_may_come_in_a_pause() -> None:
    asked = replace(row(1), trigger="redrive")
    pause = Paused(ZERO + 0.9, frozenset(), ZERO + 3)
    assert kinds(changed([visit(1)], [asked], until=1, pauses=[pause])) == set()


@pytest.mark.parametrize(
    ("expected", "skip"),
    [
        pytest.param({"left out"}, Skipped(ZERO + 1, ZERO + 0.5), id="ran"),
        pytest.param(set(), Skipped(ZERO + 1, ZERO + 0.5, ZERO + 0.7), id="was-taken-back"),
        pytest.param(set(), Skipped(ZERO + 2, ZERO + 0.5), id="another"),
    ],
)
def test_what_was_to_be_left_out_does_not_come(expected: set[str], skip: Skipped) -> None:
    assert kinds(changed(*ran(1), until=1, skips=[skip])) == expected


# -- edits of the target ---------------------------------------------------------------------------

EDIT = Version(1, 2, ZERO + 0.5)


def sent(version: int, revision: int, second: int = 1) -> tuple[list[Visit], list[Row]]:
    told = replace(row(second), revisions={(1, 1): revision})
    return [replace(visit(second), version=version)], [told]


@pytest.mark.parametrize(
    ("expected", "sent"),
    [
        pytest.param(set(), sent(1, 2), id="the-new-one"),
        pytest.param({"outdated"}, sent(0, 1), id="the-old-one"),
        pytest.param({"misrecorded"}, sent(1, 1), id="a-record-of-the-old-one"),
        pytest.param({"outdated", "misrecorded"}, sent(0, 2), id="a-record-of-the-new-one"),
    ],
)
def test_what_is_due_behind_an_edit_is_sent_as_it_says(
    expected: set[str], sent: tuple[list[Visit], list[Row]]
) -> None:
    assert kinds(changed(*sent, until=1, versions=[EDIT])) == expected


def test_a_retry_is_sent_as_the_edit_says_that_was_answered_before_the_failure() -> None:
    told = row(1, "succeeded", (1, 1, "failed"), (2, 1, "succeeded"))
    visits = [visit(1, status=500), visit(1, attempt=2, start=4)]
    for expected, answered in (({"outdated"}, 1.2), (set(), 1.9)):
        edits = [Version(1, 2, ZERO + answered)]
        assert kinds(changed(visits, [told], until=1, versions=edits)) == expected


# -- deletions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "named"),
    [
        pytest.param({"deleted"}, frozenset[str](), id="ran"),
        pytest.param(set(), frozenset({key(2)}), id="was-named"),
        pytest.param(set(), None, id="nothing-is-known-of-the-answer"),
    ],
)
def test_nothing_begins_behind_a_deletion_but_what_it_names(
    expected: set[str], named: frozenset[str] | None
) -> None:
    deleted = Deleted(ZERO + 1.8, ZERO + 1.9, named)
    assert kinds(changed(*ran(1, 2), deleted=deleted)) == expected


def test_a_deletion_drops_what_had_not_begun_and_nothing_before_it() -> None:
    deleted = Deleted(ZERO + 3.5, ZERO + 3.6, frozenset())
    assert kinds(changed(*ran(1, 2), deleted=deleted)) == set()
    assert kinds(changed(*ran(1, 3), deleted=deleted)) == {"lost"}
    skipped = [row(1), row(3, "skipped", last=4, count=2)]
    assert kinds(changed([visit(1)], skipped, deleted=deleted)) == set()
    assert changed([], [], deleted=deleted).planned == []
    assert ALWAYS.between(math.inf, ZERO) == []
