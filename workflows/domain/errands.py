"""The errands that wait in a state, within their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import assert_never

from workflows.contracts.dead_letter import KEPT_FOR
from workflows.contracts.errands import ERRANDS_MAX, Errand, ErrandsRefused, PutOff, RefusedErrand
from workflows.contracts.incident import NOTIFY_FOR
from workflows.contracts.job import JobState
from workflows.domain.backlog import oldest

ERRANDS_MAX_BYTES = 512 * 1024
"""A dead letter carries its definition: a state full of them would be larger than a payload may be."""
BATCH_BYTES = 256 * 1024
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=2), timedelta(hours=1)
"""Between two tries of an errand that was refused; the pause doubles."""
LONGEST_PAUSE_AWAY = timedelta(minutes=1)
"""The longest if it was refused because the server was away: what waits is told soon after an outage."""
NEXT_TO = timedelta(minutes=5)
"""What would be tried again so soon after another is tried with it."""
REASON_MAX = 200
_FRESH = datetime.min.replace(tzinfo=UTC)
GIVEN_UP_AFTER: dict[str, timedelta] = {
    "tell_incident": NOTIFY_FOR,
    "leave_group": timedelta(days=1),  # the group has asked its holder long before
    "tell_dead_letter": KEPT_FOR,  # the letter has expired
}
"""From the first refusal on, and not because the server is away. A dead letter that could not be opened is
tried for ever: it is nowhere else."""


def add(state: JobState, *new: Errand) -> None:
    """Append them; beyond the bounds the oldest word on an incident goes first, and a dead letter last,
    whose execution the history has still."""
    kept = [*state.errands]
    for errand in new:
        kept = [known for known in kept if not _supersedes(errand, known)]
        kept.append(errand)
    sizes = [_size(errand) for errand in kept]
    while len(kept) > ERRANDS_MAX or sum(sizes) > ERRANDS_MAX_BYTES:
        place = _least(kept[:-1])
        if place is None:
            break
        del kept[place], sizes[place]
        state.errands_given_up += 1
    state.errands = kept


def batch(errands: Sequence[Errand]) -> list[Errand]:
    """The oldest of them that fit into one payload; one at least."""
    return oldest(errands, _size, BATCH_BYTES)


def ready(errands: Sequence[Errand], now: datetime) -> list[Errand]:
    """Those to run now: what has not been put off, oldest first, then what was and is due."""
    planned = _planned(errands)
    due = any(_FRESH < at <= now for at, _ in planned)
    horizon = now + NEXT_TO if due else now
    return [errand for at, errand in planned if at <= horizon]


def next_try(errands: Sequence[Errand]) -> datetime | None:
    """When something of what was put off is to be run; None: nothing was."""
    return min((at for at, _ in _planned(errands) if at > _FRESH), default=None)


def settle(state: JobState, batch: Sequence[Errand], left: ErrandsRefused, now: datetime) -> list[Errand]:
    """Take out what a batch has done, put off what it refused; those that are given up."""
    refused = {one.place: one for one in left.refused}
    tried: list[tuple[Errand, Errand | None]] = []
    given_up: list[Errand] = []
    for place, errand in enumerate(batch):
        if place in left.untried:
            continue
        again = _again(errand, refused[place], now) if place in refused else None
        if place in refused and again is None:
            given_up.append(errand)
        tried.append((errand, again))
    kept: list[Errand] = []
    for errand in state.errands:  # what was told anew meanwhile is none of the batch
        found = next((one for one in tried if one[0] == errand), (errand, errand))
        if found[1] is not None:
            kept.append(found[1])
    state.errands = kept
    state.errands_given_up += len(given_up)
    return given_up


def receiver(errand: Errand) -> tuple[str, ...]:
    """Whom it tells: errands to the same one are run in order."""
    match errand.kind:
        case "open_dead_letter":
            return ("letter", errand.letter.occurrence.key)
        case "tell_dead_letter":
            return ("letter", errand.ended.key)
        case "tell_incident":
            return ("incident", errand.word.tenant, errand.word.kind, errand.word.subject)
        case "leave_group":
            return ("group", errand.leave.group, errand.leave.key)
        case _:
            assert_never(errand)


def subject(errand: Errand) -> str:
    """For people: whom it tells of what."""
    match errand.kind:
        case "open_dead_letter":
            return f"{errand.kind} of {errand.letter.occurrence.key}"
        case "tell_dead_letter":
            return f"{errand.kind} of {errand.ended.key}"
        case "tell_incident":
            return f"{errand.kind} {errand.word.kind} of {errand.word.subject[:REASON_MAX]}"
        case "leave_group":
            return f"{errand.kind} {errand.leave.group} by {errand.leave.key}"
        case _:
            assert_never(errand)


def _again(errand: Errand, refused: RefusedErrand, now: datetime) -> Errand | None:
    """The errand as it waits for its next try; None: it is given up."""
    known = errand.put_off
    since, tries = (now, 1) if known is None else (known.since, known.tries + 1)
    limit = GIVEN_UP_AFTER.get(errand.kind)
    if limit is not None and now - since >= limit and not refused.away:
        return None
    longest = LONGEST_PAUSE_AWAY if refused.away else LONGEST_PAUSE
    pause = min(FIRST_PAUSE * 2 ** min(tries - 1, 20), longest)
    put_off = PutOff(tries=tries, since=since, until=now + pause, reason=refused.reason[:REASON_MAX])
    return errand.model_copy(update={"put_off": put_off})


def _planned(errands: Sequence[Errand]) -> list[tuple[datetime, Errand]]:
    """Each with the instant before which it is not run, in the order of these.

    Whoever is told two things is told them in order (an incident that opened behind its recovery would
    stay open): an errand waits for what is told to the same receiver before it.
    """
    latest: dict[tuple[str, ...], datetime] = {}
    planned: list[tuple[datetime, Errand]] = []
    for errand in errands:
        at = _FRESH if errand.put_off is None else errand.put_off.until
        at = latest[receiver(errand)] = max(at, latest.get(receiver(errand), _FRESH))
        planned.append((at, errand))
    return sorted(planned, key=itemgetter(0))


def _supersedes(new: Errand, known: Errand) -> bool:
    """A dead letter told anew is the whole letter."""
    if new.kind != "open_dead_letter" or known.kind != "open_dead_letter":
        return False
    return new.letter.occurrence.key == known.letter.occurrence.key


def _least(errands: Sequence[Errand]) -> int | None:
    """The place of the one that is missed least."""
    for kind in ("tell_incident", "tell_dead_letter", "leave_group", "open_dead_letter"):
        for place, errand in enumerate(errands):
            if errand.kind == kind:
                return place
    return None


def _size(errand: Errand) -> int:
    return len(errand.model_dump_json(exclude_none=True).encode())
