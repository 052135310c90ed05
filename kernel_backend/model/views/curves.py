"""Downsample curves for display: each point has the mean, minimum and maximum of consecutive reports."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from pydantic import FiniteFloat

from kernel_backend.model.record import Record
from kernel_backend.model.reports import Kind

LARGEST = 1e150  # larger values are treated as infinity: no axis shows them, and their sums would overflow


class Curve(Record):
    """Curve of one metric of a trial. Each point summarises `size` consecutive reports; all lists have equal length.

    `step`, `epoch` and `at` are those of a point's last report; `mean`, `low` and `high` are over its finite values
    below `LARGEST`, None if there are none; `broken` has the indices of points with any other value: NaN, infinity, or
    at least `LARGEST`.
    """

    kind: Kind
    metric: str
    size: tuple[int, ...]
    step: tuple[int, ...]
    epoch: tuple[FiniteFloat, ...]
    at: tuple[FiniteFloat, ...]
    mean: tuple[FiniteFloat | None, ...]
    low: tuple[FiniteFloat | None, ...]
    high: tuple[FiniteFloat | None, ...]
    broken: tuple[int, ...] = ()
    last: float | None = None  # the newest value, unchanged; it may be NaN


class Curves(Record):
    """All curves of a trial, ordered by the first report of their metrics."""

    trial: int
    curves: tuple[Curve, ...] = ()
    seq: int = 0  # sequence number of the newest report: a client watches from here


class Column(NamedTuple):
    """All values of one metric, ordered by step, with epochs and report times: four arrays of equal length."""

    step: array[int]
    epoch: array[float]
    at: array[float]
    value: array[float]


class ReportedValues(NamedTuple):
    """Reported values of a trial: a column per metric, ordered by the first report of each.

    Instances are never modified, so that threads may share them.
    """

    columns: Mapping[tuple[Kind, str], Column] = {}
    seq: int = 0  # sequence number of the newest report

    @property
    def values(self) -> int:
        """Return how many values the columns of all metrics have together."""
        return sum(len(column.value) for column in self.columns.values())


Heard = tuple[Kind, int, float, float, Mapping[str, float]]  # kind, step, epoch, time and metrics of a report


def gather(reports: Iterable[Heard], seq: int) -> ReportedValues:
    """Return the values of a trial's reports by metric, each metric ordered by step; reports may be in any order.

    `seq` is the sequence number of the newest report.
    """
    alike: dict[tuple[Kind, tuple[str, ...]], list[Heard]] = {}  # reports with the same metrics
    for report in reports:
        alike.setdefault((report[0], tuple(report[4])), []).append(report)
    told = [ReportedValues(seq=seq)]
    for (kind, names), heard in alike.items():
        heard.sort(key=itemgetter(1))
        _, steps, epochs, times, metrics = zip(*heard, strict=True)
        step, epoch, at = array("q", steps), array("d", epochs), array("d", times)
        values = {name: array("d", [each[name] for each in metrics]) for name in names}
        told.append(ReportedValues({(kind, name): Column(step, epoch, at, values[name]) for name in names}))
    return join(told)


def join(parts: Sequence[ReportedValues]) -> ReportedValues:
    """Merge several sets of a trial's reported values into one, ordered by step.

    Values that arrived late, such as those of an older attempt, are inserted at their steps.
    """
    found: dict[tuple[Kind, str], list[Column]] = {}
    for part in parts:
        for key, column in part.columns.items():
            found.setdefault(key, []).append(column)
    columns = {key: _joined(pieces) for key, pieces in found.items()}
    return ReportedValues(columns, max((part.seq for part in parts), default=0))


def _joined(parts: Sequence[Column]) -> Column:
    if len(parts) == 1:
        return parts[0]
    whole = Column(array("q"), array("d"), array("d"), array("d"))
    for part in parts:
        whole.step.extend(part.step)
        whole.epoch.extend(part.epoch)
        whole.at.extend(part.at)
        whole.value.extend(part.value)
    if all(before.step[-1] < after.step[0] for before, after in pairwise(parts)):
        return whole
    # A completed report arrives again with a new number: of equal steps, the first is the value.
    first_at = {step: place for place, step in reversed(list(enumerate(whole.step)))}
    order = [first_at[step] for step in sorted(first_at)]
    epoch, at, value = (array("d", [each[place] for place in order]) for each in whole[1:])
    return Column(array("q", [whole.step[place] for place in order]), epoch, at, value)


def thin(trial: int, told: ReportedValues, points: int) -> Curves:
    """Return the curves of trial number `trial` with at most `points` points each.

    They are downsampled from `told`, all values that the trial has reported.
    """
    curves = tuple(_thinned(kind, name, column, points) for (kind, name), column in told.columns.items())
    return Curves(trial=trial, curves=curves, seq=told.seq)


def trainings(epochs: Sequence[float]) -> list[int]:
    """Return where, among a curve's epochs, a training begins: first, and where a later one counts its own epochs.

    A curve whose points all lie at the end of the same epoch has one of each training.

    Examples
    --------
    >>> trainings([0.5, 1, 1.5, 2, 0.5, 1]), trainings([6, 6, 6]), trainings([0, 0])
    ([0, 4], [0, 1, 2], [0])
    """
    if epochs and min(epochs) == max(epochs) > 0:
        return list(range(len(epochs)))
    return [0, *(place for place, (before, now) in enumerate(pairwise(epochs), 1) if now < before)]


def _thinned(kind: Kind, metric: str, column: Column, points: int) -> Curve:
    begins = trainings(column.epoch)
    if len(begins) > points // 2:  # no trainings, but epochs in disorder
        begins = [0]
    size = math.ceil(len(column.value) / (points - len(begins) + 1))
    spans = [
        (first, min(first + size, stop))
        for start, stop in pairwise([*begins, len(column.value)])
        for first in range(start, stop, size)
    ]
    groups = [column.value[first:stop] for first, stop in spans]
    finite = [[value for value in group if abs(value) < LARGEST] for group in groups]
    ends = [stop - 1 for _, stop in spans]
    return Curve(
        kind=kind,
        metric=metric,
        size=tuple(map(len, groups)),
        step=tuple(column.step[end] for end in ends),
        epoch=tuple(column.epoch[end] for end in ends),
        at=tuple(column.at[end] for end in ends),
        mean=tuple(map(_mean, finite)),
        low=tuple(min(values, default=None) for values in finite),
        high=tuple(max(values, default=None) for values in finite),
        broken=tuple(place for place, values in enumerate(finite) if len(values) < len(groups[place])),
        last=column.value[-1],
    )


def _mean(values: list[float]) -> float | None:
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    return min(max(mean, min(values)), max(values))  # rounding must not move the mean out of the band
