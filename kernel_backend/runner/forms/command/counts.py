"""Count the steps and epochs that a program has trained, from the metrics that it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from kernel_backend.runner.forms.command.reports import Logged


class Place(NamedTuple):
    """Step and epoch at which a report of a program is shown in the curves."""

    step: int
    epoch: float


@dataclass
class Counts:
    """Numbers of steps and epochs that a program has trained, counted from its reports.

    As long as no report names its step, each report with values counts as one step. A validation completes an epoch. If
    reports name epochs, the completed epochs are counted from the first epoch named; otherwise, each validation adds
    one.
    """

    step: int = 0
    epochs: int = 0  # completed
    first: int | None = None  # the first epoch that a report named
    here: int = 0  # epochs completed before the named one
    names_steps: bool = False

    def take(self, report: Logged, validation: bool) -> Place:
        """Update the counts by a report of the program; return the step and epoch at which curves show the report.

        `validation` says whether the report is of a validation, which completes an epoch.
        """
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
        """Continue the step count at that of `later`, so that no step number is used twice in the curves.

        `later` has the counts that the program had reached when it ended; this object has those of the older files from
        which the program now restarts. If the program's reports name their steps, nothing is changed.
        """
        if not self.names_steps:
            self.step = max(self.step, later.step)

    def since(self, began: int) -> int:
        """Return how many steps were taken since the count was `began`; the step's own number if reports name steps.

        A failure at the same place has the same number in each attempt, however far the counts of earlier ones went.
        """
        return self.step if self.names_steps else self.step - began

    def state(self) -> dict[str, Any]:
        """Return the counts as JSON data, for a checkpoint."""
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Counts:
        """Return the counts in `state`, the JSON data that the method `state` has returned."""
        return cls(**state)
