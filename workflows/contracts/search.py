"""The search attributes with which every workflow of ours starts, for whoever looks in the Temporal UI."""

from __future__ import annotations

from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from workflows.contracts.names import SEARCH_JOB, SEARCH_REF, SEARCH_TENANT


def attributes(tenant: str, job: str | None = None, ref: str | None = None) -> TypedSearchAttributes:
    """Whose workflow it is: its tenant, and the job with its generation where it is one job's."""
    named = {SEARCH_TENANT: tenant, SEARCH_JOB: job, SEARCH_REF: ref}
    return TypedSearchAttributes(
        [
            SearchAttributePair(SearchAttributeKey.for_keyword(name), value)
            for name, value in named.items()
            if value is not None
        ]
    )
