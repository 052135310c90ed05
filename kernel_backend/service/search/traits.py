"""Derive properties of an experiment's search: its method, its settings, and the reasons why its trials have ended."""

from __future__ import annotations

from kernel_backend.errors import Conflict
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.search import registry
from kernel_backend.model.search.methods import SearchMethod
from kernel_backend.model.search.records import Reason, Settings
from kernel_backend.model.states import TrialState
from kernel_backend.model.trial import Failure, Trial
from kernel_backend.search import settings
from kernel_backend.search.samplers.optuna import NEEDED


def method_of(experiment: Experiment) -> SearchMethod | None:
    """Return the search method of an experiment; None if it is no search, or if the method's package is missing."""
    search = experiment.config.search
    return registry.find(search.method) if search is not None else None


def is_custom(experiment: Experiment) -> bool:
    """Return whether an experiment uses a custom search class."""
    method = method_of(experiment)
    return method is not None and method.own_class


def is_slow(experiment: Experiment) -> bool:
    """Return whether an experiment's searcher (custom class or plugin) may be slow or raise errors."""
    search, method = experiment.config.search, method_of(experiment)
    return search is not None and (method is None or method.slow or search.samples_by in NEEDED)


def settings_of(experiment: Experiment) -> Settings:
    """Return the settings of an experiment's search; raises Conflict if the experiment is no search."""
    if experiment.config.search is None:
        raise Conflict(f"experiment #{experiment.number} is no search: it has a single trial")
    return settings.settings_of(experiment.config)


def unprepared_text(failure: Failure) -> str:
    """Return the error message for a search that was ended because `prepare()` fails in its trials."""
    where = f" ({failure.frames[-1].where})" if failure.frames else ""
    return f"prepare() fails, so that no trial can begin: {failure.type}: {failure.message}{where}"


def exit_reason(trial: Trial) -> Reason:
    """Return why a trial ended, as a value that `Searcher.on_exit` accepts."""
    if trial.state is TrialState.FAILED:
        return "invalid" if trial.failure is not None and trial.failure.invalid else "failed"
    if trial.state is TrialState.COMPLETED:  # it lacks the final report, which every trial of a search must make
        return "failed"
    return "pruned" if trial.state is TrialState.PRUNED else "stopped"
