"""Count how far a program is, by what it reports: steps, and epochs as the units of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from kernel_backend.runner.forms.command.reports import Logged


class Place(NamedTuple):
    """Step and epoch that a report is drawn at."""

    step: int
    epoch: float


@dataclass
class Counts:
    """Steps and epochs of a program.

    A program that names no step has one for each report. An epoch is completed by a validation: the one that the
    program names, counted from the first that it ever named, else the next one.
    """

    step: int = 0
    epochs: int = 0  # completed
    first: int | None = None  # the first epoch that was named
    here: int = 0  # epochs before the named one
    names_steps: bool = False

    def take(self, report: Logged, validation: bool) -> Place:
        """Count a report and return its place."""
        if report.step is not None:
            self.step, self.names_steps = report.step, True
        elif report.values and not self.names_steps:
            self.step += 1
        if report.epoch is not None:
            self.first = report.epoch if self.first is None else self.first
            self.here = max(0, report.epoch - self.first)
        if validation:
            self.epochs = self.epochs + 1 if self.first is None else self.here + 1
            return Place(self.step, self.epochs)
        return Place(self.step, max(self.epochs, self.here))

    def skip(self, later: Counts) -> None:
        """Number reports beyond those that were counted `later`, before a restart from here."""
        if not self.names_steps:
            self.step = max(self.step, later.step)

    def state(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Counts:
        """Return the counts of a state."""
        return cls(**state)
