"""Names that several processes must agree on, and the one place that composes and reads them."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import datetime

from workflows.contracts.base import rfc3339

TENANT_PATTERN = r"[a-z0-9][a-z0-9-]{0,62}"
JOB_ID_PATTERN = r"[a-z0-9][a-z0-9._-]{0,127}"
GROUP_PATTERN = JOB_ID_PATTERN
REQUEST_PATTERN = r"[A-Za-z0-9_-]{1,64}"

JOB_WORKFLOW = "job"
RUN_WORKFLOW = "run"
"""A run beside its job's loop."""
BULK_WORKFLOW = "bulk"
BULKS_WORKFLOW = "bulks"
"""Admits a tenant's bulks."""
GROUP_WORKFLOW = "group"
DEAD_LETTER_WORKFLOW = "dead_letter"
INCIDENT_WORKFLOW = "incident"

PLAN_ACTIVITY = "plan"
ATTEMPT_ACTIVITY = "attempt"
FLUSH_ACTIVITY = "flush_records"
START_RUN_ACTIVITY = "start_run"
ERRANDS_ACTIVITY = "run_errands"
ASK_GROUP_ACTIVITY = "ask_group"
SEND_REDRIVE_ACTIVITY = "send_redrive"
REDRIVE_ALIVE_ACTIVITY = "redrive_alive"
STORE_LETTER_ACTIVITY = "store_dead_letter"
ASK_HOLDERS_ACTIVITY = "ask_holders"
"""Which holders of a group have let go of their places without a word."""
BACKFILL_PAGE_ACTIVITY = "backfill_page"
RUNS_ALIVE_ACTIVITY = "runs_alive"
"""Which runs beside a job are alive, asked when one of them would hold back another."""
BULK_COUNT_ACTIVITY = "bulk_count"
BULK_PAGE_ACTIVITY = "bulk_page"
BULK_APPLY_ACTIVITY = "bulk_apply"
BULK_NOTE_ACTIVITY = "bulk_note"
NOTIFY_ACTIVITY = "notify_incident"
STORE_INCIDENTS_ACTIVITY = "store_incidents"

UPDATE_EDIT = "edit"
UPDATE_PAUSE = "pause"
UPDATE_RESUME = "resume"
UPDATE_TRIGGER = "trigger"
UPDATE_DELETE = "delete"
UPDATE_SKIP = "skip"
UPDATE_CANCEL = "cancel"
UPDATE_ADMIT = "admit"
UPDATE_REDRIVE = "redrive"
UPDATE_BACKFILL = "backfill"
UPDATE_CANCEL_BACKFILL = "cancel_backfill"
UPDATE_HOLDS = "holds"
"""A group's question to a run that has a place: do you still hold this grant?"""
UPDATE_LIMIT = "limit"
UPDATE_DISCARD = "discard"
SIGNAL_FIRED = "fired"
SIGNAL_ENDED = "ended"
"""To a job: a run beside it has ended."""
SIGNAL_STOP = "stop"
"""To a run beside its job: stop wherever you are; the argument is the reason."""
SIGNAL_STANDING = "standing"
"""To a run beside its job: the job is paused, resumed, edited or deleted."""
SIGNAL_ASK = "ask"
"""To a group: a run wants a place."""
SIGNAL_LEAVE = "leave"
SIGNAL_GRANTED = "granted"
"""From a group to a run."""
SIGNAL_LETTER = "letter"
"""To a dead letter: its redrive failed as well; the argument is the whole letter anew."""
SIGNAL_LETTER_ENDED = "letter_ended"
SIGNAL_LETTER_CLOSED = "letter_closed"
"""To a job: a dead letter of its is not open any more; the argument is the key."""
SIGNAL_INCIDENT = "incident"
QUERY_VIEW = "view"
QUERY_STATE = "state"
QUERY_STOP_INTENT = "stop_intent"
QUERY_PROGRESS = "progress"

INCIDENT_PREFIX = "inc_"
"""Of ids of incidents, which no key of an occurrence begins with."""

MAIN_QUEUE = "carillon"
"""Workflows and attempts that are held until they are due."""
DUE_QUEUE = "carillon-due"
"""Attempts that are due when they are scheduled."""

SEARCH_TENANT = "CarillonTenant"
SEARCH_JOB = "CarillonJob"
SEARCH_REF = "CarillonRef"
SEARCH_ATTRIBUTES = (SEARCH_TENANT, SEARCH_JOB, SEARCH_REF)
"""Keywords, set once when a workflow starts; for operators and for finding a ref without the database."""


def ref_of(job: str, generation: int) -> str:
    """The job id, from the second creation of that id on with its generation (``id~2``)."""
    return job if generation == 1 else f"{job}~{generation}"


def job_of(ref: str) -> tuple[str, int]:
    """The job id and generation of a ref."""
    job, tilde, generation = ref.partition("~")
    return job, int(generation) if tilde else 1


def job_workflow_id(tenant: str, ref: str) -> str:
    return f"job/{tenant}/{ref}"


def run_workflow_id(tenant: str, ref: str, name: str) -> str:
    """Of a run beside its job; ``name`` is that of :func:`run_name`."""
    return f"run/{tenant}/{ref}/{name}"


def run_name(key: str, first_attempt: int = 1, backfill: int | None = None) -> str:
    """What names a run among those of its job; a redrive's or backfill's own, for its key has run before."""
    suffix = suffix_of(key)
    if backfill is not None and key == occurrence_key(key):
        suffix = backfill_key(suffix, backfill)
    return suffix if first_attempt == 1 else f"{suffix}/{first_attempt}"


def first_attempt_of(name: str) -> int:
    """The attempt that the run of this name (see :func:`run_name`) began with."""
    _, slash, attempt = name.rpartition("/")
    return int(attempt) if slash else 1


def bulk_workflow_id(tenant: str, bulk: str) -> str:
    return f"bulk/{tenant}/{bulk}"


def bulks_workflow_id(tenant: str) -> str:
    return f"bulks/{tenant}"


def suffix_of(key: str) -> str:
    """What names a run among those of its job: the key behind the ref; of a manual run, its request."""
    return parse_key(key)[2].removeprefix("manual-")


def rerun_key(key: str, number: int) -> str:
    """The key of a rerun of the occurrence behind ``key``, which may be that of a rerun itself."""
    return f"{rerun_of(key)}+r{number}"


def rerun_of(key: str) -> str:
    """The key without the part that says which rerun it is."""
    return re.sub(r"\+r[1-9][0-9]*$", "", key)


def rerun_number(key: str) -> int:
    """Which rerun a key names; 0: it is none."""
    found = re.search(r"\+r([1-9][0-9]*)$", key)
    return int(found.group(1)) if found else 0


def backfill_key(key: str, number: int) -> str:
    """The key under which a backfill of all occurrences runs one, so that no target drops it."""
    return f"{key}+b{number}"


def occurrence_key(key: str) -> str:
    """The occurrence's own key, of a rerun's or a backfill's too."""
    return re.sub(r"(\+[br][1-9][0-9]*)+$", "", key)


def group_workflow_id(tenant: str, group: str) -> str:
    return f"group/{tenant}/{group}"


def dead_letter_workflow_id(key: str) -> str:
    """Of the one open dead letter there can be of an occurrence."""
    tenant, ref, rest = parse_key(key)
    return f"dead-letter/{tenant}/{ref}/{rest}"


def incident_workflow_id(tenant: str, kind: str, subject: str) -> str:
    return f"incident/{tenant}/{kind}/{subject}"


def incident_id(tenant: str, kind: str, subject: str, opened_at: datetime) -> str:
    """The same however often its opening is told; also the ``webhook-id`` of its first message."""
    text = f"{incident_workflow_id(tenant, kind, subject)} {rfc3339(opened_at)}"
    return INCIDENT_PREFIX + hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


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
