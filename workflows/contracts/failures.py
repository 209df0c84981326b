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
