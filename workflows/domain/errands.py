"""The errands that wait in a state, within their bounds."""

from __future__ import annotations

from collections.abc import Sequence

from workflows.contracts.errands import ERRANDS_MAX, Errand
from workflows.contracts.job import JobState
from workflows.domain.backlog import oldest

ERRANDS_MAX_BYTES = 512 * 1024
"""A dead letter carries its definition: a state full of them would be larger than a payload may be."""
BATCH_BYTES = 256 * 1024


def add(state: JobState, *new: Errand) -> None:
    """Append them; beyond the bounds the oldest word on an incident goes, then the oldest dead letter,
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
    state.errands = kept


def batch(errands: Sequence[Errand]) -> list[Errand]:
    """The oldest of them that fit into one payload; one at least."""
    return oldest(errands, _size, BATCH_BYTES)


def _supersedes(new: Errand, known: Errand) -> bool:
    """A dead letter told anew is the whole letter."""
    if new.kind != "open_dead_letter" or known.kind != "open_dead_letter":
        return False
    return new.letter.occurrence.key == known.letter.occurrence.key


def _least(errands: Sequence[Errand]) -> int | None:
    """The place of the one that is missed least."""
    for kind in ("tell_incident", "open_dead_letter"):
        for place, errand in enumerate(errands):
            if errand.kind == kind:
                return place
    return None


def _size(errand: Errand) -> int:
    return len(errand.model_dump_json(exclude_none=True).encode())
