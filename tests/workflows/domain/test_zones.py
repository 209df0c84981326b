"""Zones: which names, from where, and every change of every zone."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import pytest

import workflows.domain
from workflows.contracts.schedule import Schedule
from workflows.domain.errors import RuleError
from workflows.domain.recurrence import compile_schedule
from workflows.domain.zones import names, tzdata_version, year_start, zone

REFUSED = {
    "lower case": ("europe/berlin", "'Europe/Berlin'"),
    "upper case": ("EUROPE/BERLIN", "'Europe/Berlin'"),
    "upper case with underscores": ("AMERICA/NEW_YORK", "'America/New_York'"),
    "utc in lower case": ("utc", "'UTC'"),
    "utc in mixed case": ("Utc", "'UTC'"),
    "a blank in front": (" Europe/Berlin", "'Europe/Berlin'"),
    "a blank instead of an underscore": ("America/New York", "'America/New_York'"),
    "a city": ("Berlin", "'Europe/Berlin'"),
    "a misspelling": ("Europe/Lodon", "'Europe/London'"),
    "a removed name": ("US/Pacific-New", "'US/Pacific'"),
    "an offset from GMT": ("GMT+5", "'Etc/GMT-5' for 5 hours east"),
    "an offset from UTC": ("UTC-3", "'Etc/GMT+3' for 3 hours west"),
    "an offset alone": ("+02:00", "'Etc/GMT-2'"),
    "an offset with minutes": ("UTC+05:30", "such as"),
    "an abbreviation": ("PST", "'America/Los_Angeles'"),
    "localtime": ("localtime", "such as"),
    "posixrules": ("posixrules", "such as"),
    "Factory": ("Factory", "such as"),
    "leap seconds": ("right/Europe/London", "'Europe/London'"),
    "posix": ("posix/Europe/London", "'Europe/London'"),
    "an absolute path": ("/usr/share/zoneinfo/UTC", "write"),
    "a relative path": ("../zoneinfo/UTC", "write"),
    "a path within": ("Europe/../UTC", "write"),
    "a folder": ("Europe", "write"),
    "a file beside the zones": ("tzdata.zi", "write"),
    "a module beside the zones": ("__init__.py", "write"),
    "a rule of POSIX": ("EST5EDT,M3.2.0,M11.1.0", "write"),
    "empty": ("", "such as"),
    "a NUL": ("UTC\0", "write"),
    "letters beyond ASCII": ("Europe/Zürich", "such as"),
    "very long": ("x" * 100_000, "such as"),
}


@pytest.mark.parametrize(("name", "says"), REFUSED.values(), ids=REFUSED)
def test_an_unknown_or_odd_name_is_refused_with_a_suggestion(name: str, says: str) -> None:
    with pytest.raises(RuleError) as caught:
        zone(name)
    assert (caught.value.code, caught.value.pointer) == ("unknown_zone", "/schedule/timezone")
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400


def test_every_name_of_the_wheel_loads() -> None:
    for name in names():
        assert zone(name).name == name
    assert len(names()) > 500


RENAMED = [
    ("Europe/Kiev", "Europe/Kyiv"),
    ("US/Pacific", "America/Los_Angeles"),
    ("Asia/Calcutta", "Asia/Kolkata"),
    ("America/Montreal", "America/Toronto"),
]


@pytest.mark.parametrize(("old", "new"), RENAMED)
def test_a_renamed_zone_is_accepted_and_equal(old: str, new: str) -> None:
    found = [
        list(
            compile_schedule(Schedule(cron="30 2 * * *", timezone=name)).forward(
                datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
            )
        )
        for name in (old, new)
    ]
    assert found[0] == found[1]
    assert zone(old).name == old


def transitions(name: str) -> list[tuple[int, int, int]]:
    """The changes of offset in a zone's file: (instant, before, after). RFC 8536, second block."""
    data = files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    counts = struct.unpack(">6l", data[20:44])
    isut, isstd, leap, times, types, chars = counts
    start = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    isut, isstd, leap, times, types, chars = struct.unpack(">6l", data[start + 20 : start + 44])
    place = start + 44
    instants = struct.unpack(f">{times}q", data[place : place + 8 * times])
    kinds = data[place + 8 * times : place + 9 * times]
    offsets = [
        struct.unpack(">lBB", data[at : at + 6])[0]
        for at in range(place + 9 * times, place + 9 * times + 6 * types, 6)
    ]
    found, before = [], offsets[0]
    for instant, kind in zip(instants, kinds, strict=True):
        if offsets[kind] != before:
            found.append((instant, before, offsets[kind]))
        before = offsets[kind]
    return found


def test_no_change_of_any_zone_is_overlooked() -> None:
    """The tables of changes hold exactly what stands in the files of all zones from 1970 on.

    What follows the last one in a file comes from its rule, at most two changes a year.
    """
    for name in sorted(names()):
        written = [change for change in transitions(name) if change[0] >= 0]
        last = written[-1][0] if written else 0
        here = zone(name)
        found = [
            tuple(change)
            for year in range(1970, datetime.fromtimestamp(last, UTC).year + 1)
            for change in here.changes(year)
            if year_start(year) <= change.instant < year_start(year + 1) and change.instant <= last
        ]
        assert found == written, name


def test_the_version_is_the_wheels() -> None:
    assert tzdata_version() == __import__("tzdata").IANA_VERSION


_ASK = """
from datetime import UTC, datetime
from workflows.contracts.schedule import Schedule
from workflows.domain.recurrence import compile_schedule
from workflows.domain.zones import names, zone
for cron, name in (("30 1 * * *", "UTC"), ("0 * * * *", "UTC"), ("30 2 * * *", "America/New_York")):
    found = compile_schedule(Schedule(cron=cron, timezone=name)).forward(
        datetime(2025, 3, 1, tzinfo=UTC), datetime(2025, 11, 30, tzinfo=UTC))
    print(cron, name, *(instant.isoformat() for instant in found))
print(len(names()), zone("Europe/London").changes(2026))
"""


def test_the_hosts_zone_and_zone_files_do_not_matter(tmp_path: Path) -> None:
    """The same answers under any TZ, and with a PYTHONTZPATH whose files are nonsense."""
    (tmp_path / "America").mkdir()
    (tmp_path / "Europe").mkdir()
    for name in ("UTC", "America/New_York", "Europe/London"):
        (tmp_path / name).write_bytes(b"nonsense")
    root = Path(workflows.domain.__file__).parents[2]
    plain = {key: value for key, value in os.environ.items() if key not in ("TZ", "PYTHONTZPATH")}
    hosts = [
        {},
        {"TZ": "Europe/London"},
        {"TZ": "Australia/Sydney", "PYTHONTZPATH": str(tmp_path)},
        {"TZ": "America/St_Johns", "PYTHONTZPATH": ""},
    ]
    answers = {
        subprocess.run(
            [sys.executable, "-c", _ASK],
            env=plain | host,
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for host in hosts
    }
    assert len(answers) == 1
    assert "2025-10-05T03:00:00+00:00" in answers.pop()
