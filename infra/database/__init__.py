"""SQL beside Temporal: the index of jobs, the history of executions, and the channel that fills them.

No run ever waits for it: reads and creations fail with :class:`DatabaseUnavailable` within seconds, and
records that cannot be stored stay with their workflow.
"""

from infra.database.admission import Draft, Reservation
from infra.database.audit import AuditEntry, AuditLog
from infra.database.engine import Database
from infra.database.errors import (
    BadCursor,
    CreateRateExceeded,
    DatabaseError,
    DatabaseRejected,
    DatabaseUnavailable,
    IdempotencyConflict,
    JobExists,
    QuotaExceeded,
    ReservationRefused,
)
from infra.database.executions import History, StoredExecution
from infra.database.feed import Change, Feed, Place, Reading
from infra.database.groups import GroupIndex, StoredGroup
from infra.database.jobs import Activation, JobIndex, id_of_key
from infra.database.page import Page
from infra.database.stored_job import StoredJob, StoredStatus
from infra.database.writer import RecordWriter, WriterCounts

__all__ = [
    "Activation",
    "AuditEntry",
    "AuditLog",
    "BadCursor",
    "Change",
    "CreateRateExceeded",
    "Database",
    "DatabaseError",
    "DatabaseRejected",
    "DatabaseUnavailable",
    "Draft",
    "Feed",
    "GroupIndex",
    "History",
    "IdempotencyConflict",
    "JobExists",
    "JobIndex",
    "Page",
    "Place",
    "QuotaExceeded",
    "Reading",
    "RecordWriter",
    "Reservation",
    "ReservationRefused",
    "StoredExecution",
    "StoredGroup",
    "StoredJob",
    "StoredStatus",
    "WriterCounts",
    "id_of_key",
]
