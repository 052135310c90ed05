"""Compare results: the best value of a trial, and the best of many trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from kernel_backend.model.experiment import Metric
from kernel_backend.model.reports import Report, StoredReport
from kernel_backend.model.trial import Best


class Validated(Protocol):
    """Protocol of objects that have a trial's number and its best validation, such as a `Trial`."""

    @property
    def index(self) -> int:
        """Number of the trial in its experiment, from 1."""

    @property
    def best(self) -> Best | None:
        """Best validation; None before the first finite value."""


def better(best: Best | None, report: Report | StoredReport, metric: Metric) -> Best | None:
    """Return the better of two validation values: a trial's best so far, and the value in one more report.

    The earlier step wins a tie. Values that are not finite are ignored. Returns None if neither exists: `best` is None,
    and the report has no finite value of the metric.
    """
    value = metric.of(report.metrics)
    if value is None or not metric.better(value, None):
        return best
    if best is not None and (metric.lower(best.value), best.step) <= (metric.lower(value), report.step):
        return best
    return Best(value=value, step=report.step, epoch=report.epoch)


def best_values(trials: Iterable[Validated]) -> dict[int, float]:
    """Return the best value of each trial that has one, by the trial's index."""
    return {trial.index: trial.best.value for trial in trials if trial.best}


def best_first(values: Mapping[int, float], metric: Metric) -> list[int]:
    """Return the indices of trials by their values, best first. Ties go to the lower index."""
    return sorted(sorted(values), key=values.__getitem__, reverse=metric.mode == "max")


def best_of(values: Mapping[int, float], metric: Metric) -> int | None:
    """Return the index of the trial with the best value; None if `values` is empty. A tie goes to the lower index."""
    if not values:
        return None
    top = max(values.values()) if metric.mode == "max" else min(values.values())
    return min(index for index, value in values.items() if value == top)
