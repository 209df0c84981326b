"""The base of every contract model, and the scalar types they share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, ClassVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)


class Contract(BaseModel):
    """A model that is stored in histories: frozen, and lenient towards fields of newer releases."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)
    leaves_defaults_out: ClassVar[bool] = False
    """Whether fields that hold their default are left out of the payload. Only for what lives no longer
    than an attempt and is written for each: a state must keep what it was made with, whatever a later
    release takes for a default. Defaults below such a model may not change (``tests/contracts``)."""


class PublicContract(Contract):
    """A contract that clients write and read: the docstrings of its fields are their descriptions in the
    API's document, so they are written for users and name no module of ours."""

    model_config = ConfigDict(use_attribute_docstrings=True)


def rfc3339(instant: datetime) -> str:
    """UTC with ``Z``; fractions of a second only where there are any."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _to_utc(instant: datetime) -> datetime:
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise ValueError("the instant lies outside the years 1 to 9999 in UTC") from None


Instant = Annotated[
    AwareDatetime,
    AfterValidator(_to_utc),
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""An aware datetime, held in UTC and written in RFC 3339 with ``Z``."""

Duration = Annotated[timedelta, Field(ge=timedelta(0))]
"""ISO 8601 in JSON (``PT90S``); a number of seconds is accepted. Never negative."""
