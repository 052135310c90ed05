"""Compare results: the best value of a trial, and the best of many trials."""

from __future__ import annotations

from collections.abc import Iterable

from kernel_backend.model.experiment import Metric
from kernel_backend.model.reports import Report, StoredReport
from kernel_backend.model.trial import Best


def better(best: Best | None, report: Report | StoredReport, metric: Metric) -> Best | None:
    """Return the better of two validation values: a trial's best so far, and the value in one more report.

    The earlier step wins a tie. Values that are not finite are ignored. Returns None if there is neither.
    """
    value = report.metrics.get(metric.name)
    if value is None or not metric.better(value, None):
        return best
    if best is not None and (metric.lower(best.value), best.step) <= (metric.lower(value), report.step):
        return best
    return Best(value=value, step=report.step, epoch=report.epoch)


def best_first(trials: Iterable[tuple[int, Best | None]], metric: Metric) -> list[int]:
    """Return the indices of trials that have a best value, best first. Ties go to the lower index."""
    return [index for _, index in sorted((metric.lower(best.value), index) for index, best in trials if best)]


def best_of(trials: Iterable[tuple[int, Best | None]], metric: Metric) -> int | None:
    """Return the index of the trial with the best value, None if none has one. A tie goes to the lower index."""
    found = [(best.value, index) for index, best in trials if best]
    if not found:
        return None
    values = (value for value, _ in found)
    top = max(values) if metric.mode == "max" else min(values)
    return min(index for value, index in found if value == top)
