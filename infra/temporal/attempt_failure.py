"""How an attempt that failed is reported to Temporal, by whoever knows its end."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from workflows.contracts.attempt import AttemptReport
from workflows.contracts.failures import ATTEMPT_FAILED

MESSAGE_MAX = 500


def attempt_failure(report: AttemptReport) -> ApplicationError:
    """Not retried by the server, which knows nothing of our policy, and no error of ours."""
    return ApplicationError(
        (report.error or report.outcome)[:MESSAGE_MAX],
        report,
        type=ATTEMPT_FAILED,
        non_retryable=True,
        category=ApplicationErrorCategory.BENIGN,
    )
