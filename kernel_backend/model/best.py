"""What is best: the best value that a trial has had, and the best of many trials. Whoever says `best` asks here."""

from __future__ import annotations

from collections.abc import Iterable

from kernel_backend.model.experiment import Metric
from kernel_backend.model.reports import Report, StoredReport
from kernel_backend.model.trial import Best


def better(best: Best | None, report: Report | StoredReport, metric: Metric) -> Best | None:
    """The best so far after one more validation, in whatever order they are told: of equal ones the earlier step."""
    value = report.metrics.get(metric.name)
    if value is None or not metric.better(value, None):
        return best
    if best is not None and (metric.lower(best.value), best.step) <= (metric.lower(value), report.step):
        return best
    return Best(value=value, step=report.step, epoch=report.epoch)


def best_first(trials: Iterable[tuple[int, Best | None]], metric: Metric) -> list[int]:
    """The indices of the trials that have a best value; of equal ones the lower index goes first."""
    return [index for _, index in sorted((metric.lower(best.value), index) for index, best in trials if best)]
