"""Column types that mean the same in SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_microseconds(instant: datetime) -> int:
    """Microseconds since 1970 of an aware instant, exact. Raises ValueError for a naive one."""
    if instant.tzinfo is None:
        raise ValueError(f"a stored instant needs an offset: {instant!r}")
    return (instant - _EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """The instant behind :func:`to_microseconds`, in UTC. Raises OverflowError outside year 1 to 9999."""
    return _EPOCH + timedelta(microseconds=value)


class Instant(TypeDecorator[datetime]):
    """An aware datetime: ``timestamptz`` in PostgreSQL, microseconds since 1970 in SQLite; read in UTC."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(sa.BigInteger() if dialect.name == "sqlite" else self.impl_instance)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        return to_microseconds(value) if dialect.name == "sqlite" else _aware(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return from_microseconds(value) if dialect.name == "sqlite" else value.astimezone(UTC)


def _aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError(f"a stored instant needs an offset: {value!r}")
    return value


def clean(text: str) -> str:
    """What both databases can hold of a text: no NUL, no half of a surrogate pair."""
    if text.isascii():
        return text.replace("\x00", "") if "\x00" in text else text
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


class FreeText(TypeDecorator[str]):
    """Text that strangers wrote (errors, answers, reasons); cleaned, so that no answer can stop a write."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else clean(value)


Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""Tenants, ids, keys: compared byte by byte in both databases, so that lists have one order."""
