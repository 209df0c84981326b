"""How payloads and failures are written into histories."""

from __future__ import annotations

import dataclasses

import temporalio.api.failure.v1
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import ApplicationError

from workflows.contracts.failures import ATTEMPT_FAILED


class _FailureConverter(DefaultFailureConverter):
    """A failed attempt is the target's failure: its stack trace is most of the event's bytes, and noise."""

    def to_failure(
        self,
        exception: BaseException,
        payload_converter: PayloadConverter,
        failure: temporalio.api.failure.v1.Failure,
    ) -> None:
        if isinstance(exception, ApplicationError) and exception.type == ATTEMPT_FAILED:
            exception.__traceback__ = None
        super().to_failure(exception, payload_converter, failure)


DATA_CONVERTER = dataclasses.replace(pydantic_data_converter, failure_converter_class=_FailureConverter)
"""Every client and worker of this project uses this one."""
