"""Which errands are run when, what becomes of those that are refused, and which are given up."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.workflows.domain.states import NOON, at, begun, comes_back, definition, report, state
from workflows.contracts.dead_letter import KEPT_FOR, LetterEnded
from workflows.contracts.errands import (
    ERRANDS_MAX,
    Errand,
    ErrandsRefused,
    LeaveGroup,
    PutOff,
    RefusedErrand,
    TellDeadLetter,
    TellIncident,
)
from workflows.contracts.group import GroupLeave
from workflows.contracts.incident import NOTIFY_FOR, IncidentWord
from workflows.contracts.job import JobState
from workflows.domain import details, errands

YEAR = timedelta(days=365)


def incident(subject: str, *, opens: bool = True) -> Errand:
    word = IncidentWord(tenant="acme", kind="missed", subject=subject, open=opens, at=NOON)
    return TellIncident(word=word)


def letter() -> Errand:
    """The errand of a job whose one attempt has failed."""
    job = state(definition=definition(retry={"max_attempts": 1}))
    begun(job)
    comes_back(job, report("failed", fired=1, ended=1.1, status_code=500))
    return next(errand for errand in job.errands if errand.kind == "open_dead_letter")


def letter_ended() -> Errand:
    ended = LetterEnded(key="acme/report:2026-12-01T12:01:00Z", outcome="succeeded", at=at(3))
    return TellDeadLetter(tenant="acme", ended=ended)


def leave(key: str = "acme/report:x") -> Errand:
    return LeaveGroup(tenant="acme", leave=GroupLeave(group="g", key=key, workflow_id="job/acme/report"))


def refusing(
    job: JobState, seconds: float, *refused: Errand, untried: tuple[Errand, ...] = (), away: bool = False
) -> list[Errand]:
    """All that is to be run at this time is done but for these; those that are given up."""
    now = NOON + timedelta(seconds=seconds)
    batch = errands.ready(job.errands, now)
    left = ErrandsRefused(
        refused=[RefusedErrand(place=batch.index(one), reason="no such thing", away=away) for one in refused],
        untried=[batch.index(one) for one in untried],
    )
    return errands.settle(job, batch, left, now)


def test_what_is_refused_waits_and_what_is_new_goes_before_it() -> None:
    job = state(errands=[incident("bad"), incident("good")])
    assert refusing(job, 0, job.errands[0]) == []
    [bad] = job.errands
    assert bad.put_off == PutOff(
        tries=1, since=NOON, until=NOON + timedelta(seconds=2), reason="no such thing"
    )
    assert errands.next_try(job.errands) == bad.put_off.until
    errands.add(job, leave())
    assert errands.ready(job.errands, NOON + timedelta(seconds=1)) == [leave()]
    assert errands.ready(job.errands, NOON + timedelta(seconds=2)) == [leave(), bad]
    refusing(job, 2, bad)
    [still] = job.errands
    assert still.put_off is not None
    assert (still.put_off.tries, still.put_off.since) == (2, NOON)
    assert still.put_off.until == NOON + timedelta(seconds=6)


def test_the_pause_between_two_tries_grows_to_an_hour() -> None:
    job, now = state(errands=[letter()]), NOON
    pauses = []
    for _ in range(15):
        refusing(job, (now - NOON).total_seconds(), job.errands[0])
        again_at = errands.next_try(job.errands)
        assert again_at is not None
        pauses.append((again_at - now).total_seconds())
        now = again_at
    assert pauses == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600, 3600, 3600]


def test_after_an_outage_what_waits_is_told_within_a_minute() -> None:
    """And none is given up for it, however long it was."""
    job, now = state(errands=[leave()]), NOON
    pauses = []
    for away in [True] * 12 + [False]:
        assert refusing(job, (now - NOON).total_seconds(), job.errands[0], away=away) == []
        again_at = errands.next_try(job.errands)
        assert again_at is not None
        pauses.append((again_at - now).total_seconds())
        now = again_at
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60, 60, 3600]
    assert refusing(job, YEAR.total_seconds(), job.errands[0], away=True) == []


def test_what_is_told_to_one_receiver_keeps_its_order() -> None:
    """A recovery that overtook its incident would leave it open."""
    opened, over = incident("one"), incident("one", opens=False)
    job = state(errands=[opened, over, incident("other")])
    refusing(job, 0, opened, untried=(over,))
    assert [one.put_off is None for one in job.errands] == [False, True]
    assert errands.ready(job.errands, NOON) == []
    later = errands.ready(job.errands, NOON + timedelta(seconds=2))
    assert [one.word.open for one in later if one.kind == "tell_incident"] == [True, False]


def test_those_that_are_due_soon_are_tried_with_the_one_that_is() -> None:
    """So many refused errands do not fill a history one by one. The one that is due goes first."""
    job = state(errands=[incident("a"), incident("b"), incident("c")])
    waits = [timedelta(minutes=4), timedelta(0), timedelta(minutes=6)]
    job.errands = [
        errand.model_copy(update={"put_off": PutOff(tries=9, since=NOON, until=NOON + wait)})
        for errand, wait in zip(job.errands, waits, strict=True)
    ]
    a, b, c = job.errands
    assert errands.ready(job.errands, NOON) == [b, a]
    assert errands.ready(job.errands, NOON - timedelta(seconds=1)) == []
    assert errands.ready([a, c], NOON) == []


@pytest.mark.parametrize(
    ("errand", "after"),
    [
        (incident("bad"), NOTIFY_FOR),
        (leave(), timedelta(days=1)),
        (letter_ended(), KEPT_FOR),
        (letter(), None),
    ],
    ids=lambda value: value.kind if hasattr(value, "kind") else "",
)
def test_all_but_a_dead_letter_is_given_up_in_the_end(errand: Errand, after: timedelta | None) -> None:
    """What would be lost with a letter is nowhere else; the page of its job says that it waits."""
    job = state(errands=[errand])
    assert refusing(job, 0, errand) == []
    last = YEAR if after is None else after - timedelta(seconds=1)
    [waiting] = job.errands
    assert refusing(job, last.total_seconds(), waiting) == []
    assert "refused 2 times" in details.describe(job)
    assert errand.kind in details.describe(job)
    if after is not None:
        [waiting] = job.errands
        assert refusing(job, (after + timedelta(hours=2)).total_seconds(), waiting) == [waiting]
        assert (job.errands, job.errands_given_up) == ([], 1)
        assert "1 words to other workflows were given up" in details.describe(job)


def test_a_letter_that_is_told_anew_meanwhile_stays() -> None:
    first = letter()
    assert first.kind == "open_dead_letter"
    job = state(errands=[first])
    newer = first.model_copy(update={"letter": first.letter.model_copy(update={"next_attempt": 9})})
    batch = errands.ready(job.errands, NOON)
    errands.add(job, newer)
    errands.settle(job, batch, ErrandsRefused(), NOON)
    assert job.errands == [newer]


@pytest.mark.parametrize("many", [leave, lambda key: letter_ended()], ids=["leave_group", "tell_dead_letter"])
def test_no_kind_grows_without_bound(many: object) -> None:
    """And it is a letter that goes last."""
    job = state(errands=[letter()])
    for number in range(ERRANDS_MAX + 5):
        errands.add(job, many(str(number)))  # type: ignore[operator]
    assert len(job.errands) == ERRANDS_MAX
    assert job.errands[0].kind == "open_dead_letter"
    assert job.errands_given_up == 6
