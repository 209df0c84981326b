"""What a random mix shows of its rounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rich.table import Table

from tests.faults.accounts import Account, Balance
from tests.faults.again import RUN_AGAIN
from tests.faults.alerts import TOLD
from tests.faults.changes import CHANGED
from tests.faults.reports import REPORTED


@dataclass
class Figures:
    """Of a round, or of all rounds together."""

    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    balance: Balance = field(default_factory=Balance)
    one_offs: int = 0
    triggers: int = 0
    meddled: int = 0
    """Pauses, skips, edits, deletions and limits of groups that were asked for and answered."""
    healed_after: list[float] = field(default_factory=list)
    """Seconds from the last fault until every job had run, or skipped, an occurrence due since."""
    run_again_after: list[float] = field(default_factory=list)
    """Seconds from then on until backfills, redrives and reruns had ended."""
    messages: int = 0
    incidents: int = 0
    accounts: list[Account] = field(default_factory=list)

    def add(self, other: Figures) -> None:
        self.faults += other.faults
        self.balance.add(other.balance)
        for name in ("rounds", "one_offs", "triggers", "meddled", "messages", "incidents"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("healed_after", "run_again_after", "accounts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def table(figures: Figures) -> Table:
    found = figures.balance
    shown = Table(title="Random faults", show_header=False)
    lines: list[tuple[str, object]] = [
        ("rounds", figures.rounds),
        *sorted(figures.faults.items()),
        ("occurrences planned", found.planned),
        ("one-offs, triggers", f"{figures.one_offs}, {figures.triggers}"),
        ("deliveries", found.deliveries),
        (
            "lost, unfinished, unrecorded",
            len(found.of_kind("lost", "unfinished", "unrecorded", "contradicted")),
        ),
        ("overlaps", len(found.of_kind("overlap"))),
        ("overlaps with a lost lease", len(found.named)),
        ("repeats not to be recognised", len(found.of_kind("unrecognisable"))),
        ("stuck", len(found.of_kind("stuck"))),
        ("early", len(found.of_kind("early"))),
        ("delivered again, retried", f"{found.again}, {found.retries}"),
        ("dead letters", found.dead_lettered),
        ("skipped, missed", f"{found.skipped}, {found.missed}"),
        ("backfilled, redriven, run once more", f"{found.backfilled}, {found.redriven}, {found.reruns}"),
        ("findings of these", len(found.of_kind(*RUN_AGAIN))),
        ("changes of jobs and groups", figures.meddled),
        ("findings of these", len(found.of_kind(*CHANGED, "crowded"))),
        ("findings of callbacks", len(found.of_kind(*REPORTED))),
        ("incidents, messages of them", f"{figures.incidents}, {figures.messages}"),
        ("findings of these", len(found.of_kind(*TOLD))),
        ("healed after, at most", f"{max(figures.healed_after):.1f} s"),
        ("all run again behind it, at most", f"{max(figures.run_again_after):.1f} s"),
    ]
    for name, value in lines:
        shown.add_row(name, str(value))
    return shown
