"""The fixtures of :mod:`local_targets`, for every test here."""

from __future__ import annotations

from tests.activities.targets.local_targets import make_sender, sender, start_target

__all__ = ["make_sender", "sender", "start_target"]
