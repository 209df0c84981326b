"""The errors of the database layer, and the one place where a driver's errors become them."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import timedelta

from sqlalchemy import exc


class DatabaseError(Exception):
    """The base of everything this layer raises; ``code`` is stable, the message says what to do."""

    code = "database_error"


class DatabaseUnavailable(DatabaseError):
    """The database did not answer, or not in time. Nothing is known of a write that was under way:
    send it again, every write here is idempotent."""

    code = "database_unavailable"

    def __init__(self, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.again = again
        """A new transaction may succeed at once: a lost connection, a deadlock."""


class DatabaseRejected(DatabaseError):
    """The database refused these values and always will; repeating the write is of no use."""

    code = "database_rejected"


class BadCursor(DatabaseError):
    """The cursor is none that this list gave out. Ask for the first page again."""

    code = "bad_cursor"


class ReservationRefused(DatabaseError):
    """A job may not be created; the kinds below say why."""


class QuotaExceeded(ReservationRefused):
    """The tenant has as many jobs as its plan allows."""

    code = "quota_exceeded"

    def __init__(self, max_jobs: int) -> None:
        super().__init__(f"The tenant has its {max_jobs} jobs; delete some or ask for a higher max_jobs.")
        self.max_jobs = max_jobs


class CreateRateExceeded(ReservationRefused):
    """Jobs are created faster than the plan allows."""

    code = "create_rate_exceeded"

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__(f"Jobs are created too fast; try again in {retry_after.total_seconds():.1f} s.")
        self.retry_after = retry_after


class JobExists(ReservationRefused):
    """The id belongs to a job that is not deleted."""

    code = "job_exists"

    def __init__(self, job: str, ref: str) -> None:
        super().__init__(
            f"A job {job!r} exists; choose another id, or change that job with PUT or PATCH. If it takes no "
            "change, because its workflow was terminated, delete it first."
        )
        self.job = job
        self.ref = ref


class IdempotencyConflict(ReservationRefused):
    """The Idempotency-Key was used for another request within its 24 hours."""

    code = "idempotency_conflict"

    def __init__(self, key: str) -> None:
        super().__init__(f"Idempotency-Key {key!r} belongs to another request; use a new key for a new one.")
        self.key = key


_REJECTED_CLASSES = ("22", "23", "54")
"""SQLSTATE classes that blame the values: data exception, integrity, program limit exceeded."""
_AGAIN = ("40001", "40P01")
"""Serialization failure and deadlock."""
_REJECTED_BY_SQLITE = (sqlite3.IntegrityError, sqlite3.DataError)


def translate(error: Exception) -> DatabaseError | None:
    """The layer's error for one of a driver's; None if it is none of theirs (a defect, then).

    Only what surely blames the values is a rejection: whoever writes records gives those up, while
    everything else (no such table, no permission, disk full) may be mended and is tried again.
    """
    if isinstance(error, DatabaseError):
        return error
    if isinstance(error, (OverflowError, UnicodeError)):
        return DatabaseRejected(f"The database cannot hold a value: {error}")
    if isinstance(error, exc.TimeoutError):
        return DatabaseUnavailable("No database connection came free in time; try again, or raise the pool.")
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return DatabaseUnavailable("The database did not answer in time; check its load and its network.")
    if isinstance(error, OSError):
        return DatabaseUnavailable(f"The database cannot be reached ({error}); check CARILLON_DATABASE_URL.")
    if isinstance(error, exc.DBAPIError):
        return _translate_driver(error)
    if isinstance(error, exc.StatementError):
        return DatabaseRejected(f"A value cannot be stored: {error.orig}")
    return None


def _translate_driver(error: exc.DBAPIError) -> DatabaseError:
    cause = error.orig
    state = getattr(cause, "sqlstate", None) or ""
    if state[:2] in _REJECTED_CLASSES or isinstance(cause, _REJECTED_BY_SQLITE):
        return DatabaseRejected(f"The database refused a value: {cause}")
    again = error.connection_invalidated or state in _AGAIN
    return DatabaseUnavailable(
        f"The database failed ({cause}); check that it runs and is migrated.", again=again
    )
