"""Records that the database has not confirmed, kept within bounds (docs/decisions/0005)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from workflows.contracts.job import CARRIED_BYTES, RECORDS_MAX, RECORDS_MAX_BYTES
from workflows.contracts.records import ExecutionRow, Record

T = TypeVar("T")


def size(record: Record) -> int:
    """Bytes of a record in a payload."""
    return len(record.model_dump_json(exclude_none=True).encode())


def add(records: Sequence[Record], new: Sequence[Record]) -> list[Record]:
    """``records`` and ``new`` within 200 records and 128 KiB.

    Answers of targets go first; then the oldest executions merge into one counted row an outcome.
    """
    kept = [*records, *new]
    if len(kept) <= RECORDS_MAX and sum(map(size, kept)) <= RECORDS_MAX_BYTES:
        return kept
    kept = [_without_answer(record) for record in kept]
    while len(kept) > RECORDS_MAX or sum(map(size, kept)) > RECORDS_MAX_BYTES:
        shorter = _merge_oldest(kept)
        if len(shorter) == len(kept):
            break
        kept = shorter
    return kept


def carried(records: Sequence[Record]) -> list[Record]:
    """The oldest records that ride along on the next attempt, at most 32 KiB."""
    return oldest(records, size, CARRIED_BYTES)


def oldest(items: Sequence[T], size: Callable[[T], int], room: int) -> list[T]:
    """The first of ``items`` that fit into ``room`` bytes; one at least."""
    taken: list[T] = []
    for item in items:
        room -= size(item)
        if room < 0 and taken:
            break
        taken.append(item)
    return taken


def _without_answer(record: Record) -> Record:
    if record.attempt is None or record.attempt.answer is None:
        return record
    return record.model_copy(update={"attempt": record.attempt.model_copy(update={"answer": None})})


def _merge_oldest(records: list[Record]) -> list[Record]:
    """A quarter of the bound is merged at once, so that a long outage costs little an occurrence."""
    head, tail = records[: RECORDS_MAX // 4], records[RECORDS_MAX // 4 :]
    merged: dict[str, Record] = {}
    others: list[Record] = []
    for record in head:
        row = record.execution
        if row is None or record.job is not None:
            others.append(record)
        elif row.outcome == "retrying":
            continue  # a later record of the same execution says how it ended
        elif (seen := merged.get(row.outcome)) is None:
            merged[row.outcome] = record.model_copy(update={"attempt": None})
        else:
            merged[row.outcome] = seen.model_copy(
                update={
                    "execution": _joined(seen.execution or row, row),
                    "progress": record.progress or seen.progress,
                }
            )
    return [*merged.values(), *others, *tail]


def _joined(first: ExecutionRow, second: ExecutionRow) -> ExecutionRow:
    return first.model_copy(
        update={
            "count": first.count + second.count,
            "seq": max(first.seq, second.seq) + 1,
            "ended_at": second.ended_at or first.ended_at,
            "last_scheduled_time": second.last_scheduled_time or second.scheduled_time,
            "reason": first.reason or "merged: the history could not be written",
        }
    )
