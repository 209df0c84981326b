"""Types of the Temporal failures that cross a border, and who may see them."""

from __future__ import annotations

ATTEMPT_FAILED = "AttemptFailed"
"""Details: one AttemptReport. Not an error of ours: benign, without a stack trace."""
RULE_BROKEN = "RuleBroken"
"""A schedule that cannot be planned (any more)."""

JOB_DELETED = "JobDeleted"
REVISION_MISMATCH = "RevisionMismatch"
RUN_ACTIVE = "RunActive"
TOO_MANY_TRIGGERS = "TooManyTriggers"
JOB_BUSY = "JobBusy"
EXECUTION_ENDED = "ExecutionEnded"
"""The execution to cancel is not alive (any more)."""
NO_SUCH_OCCURRENCE = "NoSuchOccurrence"
"""The instant is none of the job's future occurrences."""
TOO_MANY_SKIPS = "TooManySkips"
TOO_MANY_BULKS = "TooManyBulks"
NO_ANSWER = "NoAnswer"
"""Said of a job of a bulk: it did not answer, and the change may still be applied."""
