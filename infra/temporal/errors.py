"""The base error of starting and reaching what Carillon runs on."""

from __future__ import annotations


class SetupError(Exception):
    """Something a process needs in order to run is missing, taken or wrong; the message says how to mend it.

    ``code`` is stable.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code
