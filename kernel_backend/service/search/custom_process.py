"""Run each custom search class in a process of its own, with its experiment's interpreter and code."""

from __future__ import annotations

from typing import Any, Protocol

from kernel_backend.errors import SearchFailed
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.record import Value
from kernel_backend.search.custom import SearchProcess
from kernel_backend.search.settings import settings_of
from kernel_backend.service.environments import Preparation
from kernel_backend.snapshots.archive import Archive
from kernel_backend.workspaces.base import SearchClass, SearchClassProcess, Workspaces


class ClosableProcess(SearchProcess, Protocol):
    """Process that runs a custom search class, and that can be ended by `close`."""

    def close(self) -> None:
        """End the process of the search class."""


class ExperimentSearchProcess:
    """Process that runs an experiment's search class; the first call unpacks the code and starts the process."""

    def __init__(
        self, experiment: Experiment, archive: Archive, preparation: Preparation, workspaces: Workspaces
    ) -> None:
        self._experiment, self._archive = experiment, archive
        self._preparation, self._workspaces = preparation, workspaces
        self._child: SearchClassProcess | None = None

    def interval(self) -> Any:
        """Return the attribute `interval` of the user's search class: after how many units a trial is judged.

        A unit is an epoch or a step. None if the class has no such attribute: trials are then trained to their end.
        """
        return self._asked().interval()

    def ask(self, trial: int) -> Any:
        """Call `ask` of the user's search class in its process, and return its answer, such as hyperparameters."""
        return self._asked().ask(trial)

    def tell(self, trial: int, params: dict[str, Value], unit: int, value: float) -> Any:
        """Call `tell` of the user's search class in its process with a trial's result, and return the class's decision.

        `unit` is the length trained so far, such as the number of epochs; `value` is the metric after that.
        """
        return self._asked().tell(trial, params, unit, value)

    def close(self) -> None:
        """End the process of the search class."""
        if self._child is not None:
            self._child.close()

    def _asked(self) -> SearchClassProcess:
        if self._child is None:
            self._child = self._made()
        return self._child

    def _made(self) -> SearchClassProcess:
        experiment = self._experiment
        asked = SearchClass(
            experiment=experiment.number,
            python=self._preparation.python(experiment),
            cwd=experiment.cwd,
            locked=experiment.config.env == "locked",
            settings=settings_of(experiment.config),
            space=experiment.space,
        )
        return self._workspaces.of(experiment.owner).asker(asked, self._archive.get(experiment.snapshot))


class FailedSearchProcess:
    """Replacement for the process of a custom search class that has failed: every call raises SearchFailed."""

    def __init__(self, message: str) -> None:
        self._message = message

    def interval(self) -> Any:
        """Raise SearchFailed, as every call of a failed search does."""
        raise SearchFailed(self._message)

    def ask(self, trial: int) -> Any:
        """Raise SearchFailed, as every call of a failed search does."""
        raise SearchFailed(self._message)

    def tell(self, trial: int, params: dict[str, Value], unit: int, value: float) -> Any:
        """Raise SearchFailed, as every call of a failed search does."""
        raise SearchFailed(self._message)

    def close(self) -> None:
        """Do nothing: there is no process."""
