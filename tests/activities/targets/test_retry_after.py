"""Retry-After, in each form that RFC 9110 knows, and in those it does not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.targets.retry_after import MAX_RETRY_AFTER_S, parse_retry_after

NOW = datetime(2026, 10, 21, 7, 27, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0),
        ("60", 60),
        (" 60\t", 60),
        ("00060", 60),
        ("3601", 3600),
        ("9999999999", 3600),
        ("9" * 5000, 3600),
        ("-1", None),
        ("+5", None),
        ("1.5", None),
        ("1e3", None),
        ("0x10", None),
        ("10, 20", None),
        ("٣", None),
        ("soon", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 60),
        ("Wednesday, 21-Oct-26 07:28:00 GMT", 60),
        ("Wed Oct 21 07:28:00 2026", 60),
        ("Sun Nov  1 07:28:00 2026", 3600),
        ("Wed, 21 Oct 2026 07:26:00 GMT", None),
        ("Friday, 21-Oct-99 07:28:00 GMT", None),
        ("Wed, 21 Oct 9999 07:28:00 GMT", 3600),
        ("Wed, 21 Oct 2026 07:28:00 +0000", None),
        ("Wed, 21 Oct 2026 07:28:00", None),
        ("Wed, 31 Feb 2026 07:28:00 GMT", None),
        ("Wed, 21 Oct 2026 29:28:00 GMT", None),
        ("Wed, 00 Oct 2026 07:28:00 GMT", None),
        ("2026-10-21T07:28:00Z", None),
    ],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    assert parse_retry_after(text, now=NOW) == seconds


def test_a_two_digit_year_is_within_fifty_years() -> None:
    """RFC 9110, 5.6.7: what seems more than 50 years ahead is the most recent such year past."""
    late = datetime(2099, 12, 31, 23, 59, tzinfo=UTC)
    assert parse_retry_after("Friday, 01-Jan-00 00:00:00 GMT", now=late) is None
    assert parse_retry_after("Thursday, 31-Dec-99 23:59:30 GMT", now=late) == 30


@given(st.text(max_size=60) | st.integers().map(str) | st.floats().map(str))
def test_no_text_breaks_it(text: str) -> None:
    wait = parse_retry_after(text, now=NOW)
    assert wait is None or 0 <= wait <= MAX_RETRY_AFTER_S


@given(st.integers(1, 3599))
def test_all_three_forms_agree(ahead: int) -> None:
    instant = NOW + timedelta(seconds=ahead)
    forms = (
        "%a, %d %b %Y %H:%M:%S GMT",
        "%A, %d-%b-%y %H:%M:%S GMT",
        "%a %b %d %H:%M:%S %Y",
    )
    assert {parse_retry_after(instant.strftime(form), now=NOW) for form in forms} == {float(ahead)}
