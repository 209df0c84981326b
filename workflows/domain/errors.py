"""The one base error of the rules."""

from __future__ import annotations


class RuleError(ValueError):
    """A definition breaks a rule; the message says how to mend it.

    ``code`` is stable, ``pointer`` is a JSON pointer into the job definition (``/schedule/cron``).
    """

    def __init__(self, message: str, *, code: str, pointer: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.pointer = pointer
