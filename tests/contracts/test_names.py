"""Names that several processes must agree on: composed and read back in one place."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.contracts import names

NINE = datetime(2026, 12, 1, 9, tzinfo=UTC)
TENANTS = st.from_regex(names.TENANT_PATTERN, fullmatch=True)
JOBS = st.from_regex(names.JOB_ID_PATTERN, fullmatch=True)
REQUESTS = st.from_regex(names.REQUEST_PATTERN, fullmatch=True)
GENERATIONS = st.integers(1, 10_000)


def test_names_are_what_they_were() -> None:
    """They are in histories, in targets' stores and in rows."""
    assert names.ref_of("report", 1) == "report"
    assert names.ref_of("report", 2) == "report~2"
    assert names.job_workflow_id("acme", "report~2") == "job/acme/report~2"
    assert names.scheduled_key("acme", "report", NINE) == "acme/report:2026-12-01T09:00:00Z"
    assert names.manual_key("acme", "report~2", "r_1") == "acme/report~2:manual-r_1"
    assert names.backfill_key("acme/report:2026-12-01T09:00:00Z", 7) == "acme/report:2026-12-01T09:00:00Z+b7"
    assert names.execution_id("acme/report:manual-r", 3) == "acme/report:manual-r:3"


@pytest.mark.parametrize("suffix", ["", "+r1", "+b12", "+b3+r4"])
def test_every_key_of_an_occurrence_leads_to_its_own(suffix: str) -> None:
    own = names.scheduled_key("acme", "report", NINE)
    assert names.occurrence_key(own + suffix) == own


@pytest.mark.parametrize("other", ["+x1", "+b0", "+b", "+b1+"])
def test_what_is_no_rerun_or_backfill_stays(other: str) -> None:
    assert names.occurrence_key(f"acme/report:x{other}") == f"acme/report:x{other}"


@pytest.mark.parametrize(
    ("key", "arguments", "name"),
    [
        ("acme/report:manual-r_1", (), "r_1"),
        ("acme/report:2026-12-01T09:00:00Z", (3,), "2026-12-01T09:00:00Z/3"),
        ("acme/report:2026-12-01T09:00:00Z", (3, 2), "2026-12-01T09:00:00Z+b2/3"),
        ("acme/report:2026-12-01T09:00:00Z+b2", (1, 2), "2026-12-01T09:00:00Z+b2"),
    ],
)
def test_runs_beside_a_job_never_share_a_name(key: str, arguments: tuple[int, ...], name: str) -> None:
    assert names.run_name(key, *arguments) == name
    assert names.first_attempt_of(name) == (arguments[0] if arguments else 1)


@given(JOBS, GENERATIONS)
def test_a_ref_names_its_job_and_its_generation(job: str, generation: int) -> None:
    assert names.job_of(names.ref_of(job, generation)) == (job, generation)


@given(TENANTS, JOBS, GENERATIONS, REQUESTS)
def test_a_key_and_its_opaque_id_are_read_back(tenant: str, job: str, generation: int, request: str) -> None:
    ref = names.ref_of(job, generation)
    for key, rest in (
        (names.scheduled_key(tenant, ref, NINE), "2026-12-01T09:00:00Z"),
        (names.manual_key(tenant, ref, request), f"manual-{request}"),
    ):
        assert names.parse_key(key) == (tenant, ref, rest)
        opaque = names.opaque_id(key)
        assert re.fullmatch(r"[A-Za-z0-9_-]+", opaque)
        assert names.key_of(opaque) == key


def test_a_key_does_not_depend_on_the_zone_of_its_instant() -> None:
    elsewhere = NINE.astimezone(timezone(timedelta(hours=5, minutes=45)))
    assert names.scheduled_key("acme", "report", elsewhere) == names.scheduled_key("acme", "report", NINE)


NO_KEYS = [
    "", "acme", "acme/report", "acme/report:", "/report:x", "Acme/report:x", "acme/report~0:x",
    "acme/report~1x:x", "acme/re port:x", "acme/report:a b", "acme//x:y", "acme/../x:y",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_KEYS)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an occurrence key"):
        names.parse_key(text)
    with pytest.raises(ValueError):
        names.key_of(base64.urlsafe_b64encode(text.encode()).decode().rstrip("="))


@given(st.text(max_size=80))
def test_any_text_is_an_opaque_id_or_a_value_error(text: str) -> None:
    try:
        key = names.key_of(text)
    except ValueError:
        return
    names.parse_key(key)


@pytest.mark.parametrize(
    ("key", "number", "of"),
    [
        ("acme/report:2026-12-01T09:00:00Z", 0, "acme/report:2026-12-01T09:00:00Z"),
        ("acme/report:2026-12-01T09:00:00Z+r12", 12, "acme/report:2026-12-01T09:00:00Z"),
        ("acme/report~2:manual-a+r1", 1, "acme/report~2:manual-a"),
        ("acme/report:2026-12-01T09:00:00Z+b3", 0, "acme/report:2026-12-01T09:00:00Z+b3"),
        ("acme/report:2026-12-01T09:00:00Z+b3+r1", 1, "acme/report:2026-12-01T09:00:00Z+b3"),
    ],
)
def test_the_key_of_a_rerun_says_which_one_of_what_it_is(key: str, number: int, of: str) -> None:
    """And it is read back from an opaque id as any other."""
    assert (names.rerun_number(key), names.rerun_of(key)) == (number, of)
    assert names.rerun_key(key, 4) == f"{of}+r4"
    assert names.key_of(names.opaque_id(names.rerun_key(key, 4))) == f"{of}+r4"
