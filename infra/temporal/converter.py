"""How payloads and failures are written into histories."""

from __future__ import annotations

import dataclasses
from typing import Any

import temporalio.api.common.v1
import temporalio.api.failure.v1
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter, pydantic_data_converter
from temporalio.converter import (
    CompositePayloadConverter,
    DefaultFailureConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
    PayloadConverter,
)
from temporalio.exceptions import ApplicationError

from workflows.contracts.base import Contract
from workflows.contracts.failures import ATTEMPT_FAILED


class _JSONConverter(PydanticJSONPlainPayloadConverter):
    """What is written for every attempt is mostly defaults: two thirds of its bytes are left out."""

    def to_payload(self, value: Any) -> temporalio.api.common.v1.Payload | None:
        if isinstance(value, Contract) and value.leaves_defaults_out:
            data = value.model_dump_json(by_alias=True, exclude_defaults=True).encode()
            return temporalio.api.common.v1.Payload(metadata={"encoding": self.encoding.encode()}, data=data)
        return super().to_payload(value)


class _PayloadConverter(CompositePayloadConverter):
    def __init__(self) -> None:
        json = _JSONConverter()
        super().__init__(
            *(
                json if isinstance(converter, JSONPlainPayloadConverter) else converter
                for converter in DefaultPayloadConverter.default_encoding_payload_converters
            )
        )


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


DATA_CONVERTER = dataclasses.replace(
    pydantic_data_converter,
    payload_converter_class=_PayloadConverter,
    failure_converter_class=_FailureConverter,
)
"""Every client and worker of this project uses this one."""
