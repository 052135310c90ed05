"""Find out from what a submission's trials start: results of earlier experiments, or weights of an earlier trial."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config, Experiment, Metric
from kernel_backend.model.ids import Reference, parse_reference, parse_source
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.search.records import Search
from kernel_backend.model.search.space import Space
from kernel_backend.model.values import nearest
from kernel_backend.search.prior import PriorTrial, comparable
from kernel_backend.search.settings import unit_of
from kernel_backend.store.base import Store


def named(search: Search | None) -> list[int]:
    """Return the numbers of the experiments (without duplicates) whose results a search uses as prior data."""
    references = [parse_reference(each) for each in (search.warm if search else ())]
    return list(dict.fromkeys(each.experiment for each in references if each.trial is None))


def weights(config: Config) -> Reference | None:
    """Return the trial from whose best weights all trials start, as named by `--from` or by a search's `--warm`.

    None if none is named. Raises InvalidRequest if several are named.
    """
    search = config.search
    if config.weights_from is not None:
        source = parse_source(config.weights_from).subject
        assert isinstance(source, Reference)  # a model's name was resolved before
        if search is not None and any("." in each for each in search.warm):
            raise InvalidRequest("--from and --warm both name weights to begin with: leave one of them out")
        return Reference(source.experiment, source.trial or 1)
    references = dict.fromkeys(parse_reference(each) for each in (search.warm if search else ()))
    trials = [each for each in references if each.trial is not None]
    if len(trials) > 1:
        named = " and ".join(f"{each.experiment}.{each.trial}" for each in trials)
        raise InvalidRequest(f"--warm {named}: a trial begins with the weights of one other: leave one of them out")
    return trials[0] if trials else None


def prior_results(store: Store, config: Config, space: Space) -> list[PriorTrial]:
    """Return the trials of the earlier experiments named by a search's `--warm`, with their results so far.

    Trials whose hyperparameters lie outside `space` are left out.
    """
    found = [
        trial for number in named(config.search) for trial in _trials(store, store.experiment(number), config.metric)
    ]
    return comparable(found, space)


def check(store: Store, number: int, config: Config, space: Space) -> None:
    """Raise InvalidRequest if a search with this configuration could use none of the results of experiment `number`."""
    other = store.experiment(number)
    if (other.config.steps is None) != (config.steps is None):
        theirs, ours = ("epochs", "--steps") if other.config.steps is None else ("steps", "--epochs")
        raise InvalidRequest(
            f"--warm {number}: experiment #{number} counts {theirs}, and {ours} is given: their values are at other "
            f"moments of a training; search with --{theirs}"
        )
    trials = _trials(store, other, config.metric)
    if not any(trial.values for trial in trials):
        raise InvalidRequest(f"--warm {number}: {_unheard(number, config.metric, store.validations(number))}")
    if not comparable(trials, space):
        raise InvalidRequest(
            f"--warm {number}: no trial of experiment #{number} has all of {' '.join(space.names)} within what is "
            "searched here: leave it out, or widen the ranges"
        )


def _trials(store: Store, experiment: Experiment, metric: Metric) -> list[PriorTrial]:
    values: dict[int, list[tuple[int, float]]] = {}
    for report in store.validations(experiment.number):
        unit, value = unit_of(experiment.config, report), metric.of(report.metrics)
        if unit is not None and value is not None:
            values.setdefault(report.trial, []).append((unit, value))
    return [PriorTrial(trial.params, sorted(values.get(trial.index, ()))) for trial in store.trials(experiment.number)]


def _unheard(number: int, metric: Metric, reports: Sequence[StoredReport]) -> str:
    names = sorted({name for report in reports for name in report.metrics})
    if not names:
        return f"experiment #{number} has no validation yet, so that it has no results to use"
    if metric.name in metric.spelled(dict.fromkeys(names)):
        return f"experiment #{number} has not completed an epoch yet, so that it has no results to use"
    return (
        f"experiment #{number} reported no {metric.name}{nearest(metric.name, names)}, only {' '.join(names)}: "
        "search with --metric of one of these"
    )
