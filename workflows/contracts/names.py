"""Names that several processes must agree on, and the one place that composes and reads them."""

from __future__ import annotations

import base64
import re
from datetime import datetime

from workflows.contracts.base import rfc3339

TENANT_PATTERN = r"[a-z0-9][a-z0-9-]{0,62}"
JOB_ID_PATTERN = r"[a-z0-9][a-z0-9._-]{0,127}"
REQUEST_PATTERN = r"[A-Za-z0-9_-]{1,64}"

JOB_WORKFLOW = "job"
RUN_WORKFLOW = "run"
"""A run beside its job's loop."""
BULK_WORKFLOW = "bulk"
BULKS_WORKFLOW = "bulks"
"""Admits a tenant's bulks."""

PLAN_ACTIVITY = "plan"
ATTEMPT_ACTIVITY = "attempt"
FLUSH_ACTIVITY = "flush_records"
START_RUN_ACTIVITY = "start_run"
BULK_COUNT_ACTIVITY = "bulk_count"
BULK_PAGE_ACTIVITY = "bulk_page"
BULK_APPLY_ACTIVITY = "bulk_apply"
BULK_NOTE_ACTIVITY = "bulk_note"

UPDATE_EDIT = "edit"
UPDATE_PAUSE = "pause"
UPDATE_RESUME = "resume"
UPDATE_TRIGGER = "trigger"
UPDATE_DELETE = "delete"
UPDATE_SKIP = "skip"
UPDATE_CANCEL = "cancel"
UPDATE_ADMIT = "admit"
SIGNAL_FIRED = "fired"
SIGNAL_ENDED = "ended"
"""To a job: a run beside it has ended."""
SIGNAL_STOP = "stop"
"""To a run beside its job: stop wherever you are; the argument is the reason."""
QUERY_VIEW = "view"
QUERY_STOP_INTENT = "stop_intent"
QUERY_PROGRESS = "progress"

MAIN_QUEUE = "carillon"
"""Workflows and attempts that are held until they are due."""
DUE_QUEUE = "carillon-due"
"""Attempts that are due when they are scheduled."""

SEARCH_TENANT = "CarillonTenant"
SEARCH_JOB = "CarillonJob"
SEARCH_REF = "CarillonRef"
SEARCH_ATTRIBUTES = (SEARCH_TENANT, SEARCH_JOB, SEARCH_REF)
"""Keywords, set once when a job starts; for operators and for finding a ref without the database."""


def ref_of(job: str, generation: int) -> str:
    """The job id, from the second creation of that id on with its generation (``id~2``)."""
    return job if generation == 1 else f"{job}~{generation}"


def job_of(ref: str) -> tuple[str, int]:
    """The job id and generation of a ref."""
    job, tilde, generation = ref.partition("~")
    return job, int(generation) if tilde else 1


def job_workflow_id(tenant: str, ref: str) -> str:
    return f"job/{tenant}/{ref}"


def run_workflow_id(tenant: str, ref: str, request: str) -> str:
    return f"run/{tenant}/{ref}/{request}"


def bulk_workflow_id(tenant: str, bulk: str) -> str:
    return f"bulk/{tenant}/{bulk}"


def bulks_workflow_id(tenant: str) -> str:
    return f"bulks/{tenant}"


def scheduled_key(tenant: str, ref: str, scheduled_time: datetime) -> str:
    """The key of a scheduled occurrence; ``scheduled_time`` is a whole second."""
    return f"{tenant}/{ref}:{rfc3339(scheduled_time)}"


def stretch_key(tenant: str, ref: str, outcome: str, first: datetime) -> str:
    """The key of a row for occurrences that did not run; never that of an occurrence, which may yet run."""
    return f"{tenant}/{ref}:{outcome}-{rfc3339(first)}"


def manual_key(tenant: str, ref: str, request: str) -> str:
    return f"{tenant}/{ref}:manual-{request}"


def execution_id(key: str, attempt: int) -> str:
    return f"{key}:{attempt}"


_KEY = re.compile(rf"({TENANT_PATTERN})/({JOB_ID_PATTERN}(?:~[1-9][0-9]*)?):(\S+)")


def parse_key(key: str) -> tuple[str, str, str]:
    """Tenant, ref and the rest of a key. Raises ValueError if it is none."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"not an occurrence key: {key!r}")
    return found.group(1), found.group(2), found.group(3)


def opaque_id(key: str) -> str:
    """URL-safe form of a key, from which :func:`key_of` reads it back."""
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def key_of(opaque: str) -> str:
    """The key behind an opaque id. Raises ValueError if there is none."""
    try:
        key = base64.urlsafe_b64decode(opaque + "=" * (-len(opaque) % 4)).decode()
    except (ValueError, UnicodeDecodeError):
        raise ValueError(f"not an execution id: {opaque!r}") from None
    parse_key(key)
    return key
