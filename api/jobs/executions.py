"""From the opaque id of an execution to its job."""

from __future__ import annotations

from api.jobs.refs import Found
from api.problems import Kind, ProblemError
from workflows.contracts.names import job_of, key_of, parse_key


def no_such_execution() -> ProblemError:
    return ProblemError(Kind.NOT_FOUND, "There is no such execution.")


def locate(execution_id: str, tenant: str) -> tuple[Found, str]:
    """The job's generation and the key, from the id alone. Raises 404 for what is no id of the tenant."""
    try:
        key = key_of(execution_id)
        owner, ref, _ = parse_key(key)
    except ValueError:
        raise no_such_execution() from None
    if owner != tenant:
        raise no_such_execution()
    return Found(tenant, job_of(ref)[0], ref), key
