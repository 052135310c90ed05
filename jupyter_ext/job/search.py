"""Define the methods of a job that read and steer a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from jupyter_ext.job.base import JobBase
from jupyter_ext.trials_frame import frame
from kernel_backend.commands.search import extension

if TYPE_CHECKING:
    import optuna
    import pandas


MOST = 10_000  # curves in a study, and values of each


class JobSearch(JobBase):
    """Methods of a job that read and steer a search."""

    def trials(self) -> pandas.DataFrame:
        """Return the trials of a search, one row each.

        Returns
        -------
        DataFrame
            State, units trained (epochs or steps), newest and best value, slot-seconds used, hyperparameters and more,
            indexed by trial.

        Raises
        ------
        InvalidRequest
            pandas is not installed.
        Conflict
            The experiment is not a search.
        """
        return frame(self._client, self.number)

    def to_optuna(self) -> optuna.Study:
        """Return a search as an Optuna study, for Optuna's plots, dashboard and importances.

        Paused and pruned trials become pruned trials of the study. A trial's value is its best, and its values at the
        ends of the search's units (epochs or steps) are intermediate values.

        Returns
        -------
        optuna.Study
            The study, in memory.

        Raises
        ------
        InvalidRequest
            Optuna is not installed.
        Conflict
            The experiment is not a search.
        """
        from kernel_backend.search.report.study import study

        experiment = self.overview.experiment
        curves = self._client.search_curves(self.number, limit=MOST, points=MOST)
        rows = self._client.trial_rows(self.number, sort="trial")
        name = f"#{self.number} {experiment.name}".strip()
        return study(name, experiment.config.metric.mode, experiment.space, rows, curves.lines)

    def promote(self, trial: int) -> Self:
        """Train a trial of a search on to its next rung with the next free slots, however good it is.

        A rung is a length of training at which the search compares trials.

        Parameters
        ----------
        trial : int
            Number of the trial.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        Conflict
            The trial has ended.
        """
        self._client.promote(self.number, trial)
        return self

    def prune(self, trial: int) -> Self:
        """Prune a trial of a search for good.

        Parameters
        ----------
        trial : int
            Number of the trial.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        Conflict
            The trial has ended.
        """
        self._client.prune(self.number, trial)
        return self

    def extend(
        self, trials: int | None = None, budget: str | float | None = None, max_time: str | float | None = None
    ) -> Self:
        """Set the limits of a search, in total since the submission; a completed search continues.

        Parameters
        ----------
        trials : int, optional
            Total number of trials.
        budget : str or float, optional
            Total slot time, such as ``"20gpuh"``; a number is in seconds.
        max_time : str or float, optional
            Time since the submission, such as ``"8h"``; a number is in seconds.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        Conflict
            A limit is less than the search has used.
        """
        self._client.extend(self.number, extension(trials, budget, max_time))
        return self
