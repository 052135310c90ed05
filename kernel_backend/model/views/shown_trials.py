"""Select the trials of a search to display, as there may be thousands."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kernel_backend.model.experiment import Metric
from kernel_backend.model.states import LIVE, Hold, TrialState
from kernel_backend.model.trial import Best, Trial
from kernel_backend.model.views.best import best_first, best_values

MOST = 50  # up to this number of trials, all are displayed
BEST, TROUBLED = 20, 5


@dataclass(frozen=True, slots=True)
class TrialActivity:
    """Fields of a trial that decide whether it is displayed."""

    index: int
    state: TrialState
    best: Best | None
    troubled: bool  # an attempt of it has failed, or no node can hold its gang

    @classmethod
    def at(cls, trial: Trial) -> TrialActivity:
        """Return those fields of `trial` that decide whether it is displayed."""
        troubled = trial.failure is not None or Hold.ENGINE in trial.holds
        return cls(trial.index, trial.state, trial.best, troubled)


def shown_trials(trials: Collection[TrialActivity], metric: Metric) -> set[int]:
    """Return the indices of the trials to display.

    These are the active ones, the best, and the newest of those that have failed or whose gangs fit on no node.
    """
    live = {trial.index for trial in trials if trial.state in LIVE}
    troubled = sorted((trial for trial in trials if trial.troubled), key=_ended_first)[-TROUBLED:]
    best = best_first(best_values(trials), metric)
    return {*live, *best[:BEST], *(trial.index for trial in troubled)}


def _ended_first(trial: TrialActivity) -> tuple[bool, int]:
    return trial.state is not TrialState.FAILED, trial.index
