"""Collect the values that a loop reports on each rank, and compute their means over the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kernel_backend.model.reports import Kind, Report
from kernel_backend.runner.metrics.sums import number

KEPT = 1000  # training reports that are all kept; of later ones every tenth, up to ten times as many, and so on


def keeps(count: int) -> bool:
    """Return True if the training report of this number, from 1, is kept: see `KEPT`."""
    every = 1
    while count > KEPT * every:
        every *= 10
    return count % every == 0


class Reported(NamedTuple):
    """Values that one rank reported at a step; each is a mean over `weight` samples."""

    kind: Kind
    step: int
    epoch: float
    metrics: dict[str, float]
    weight: float


class PendingReports:
    """Reports of this rank that have not been exchanged with the other ranks yet, to be averaged over all ranks."""

    def __init__(self, count: int = 0) -> None:
        """Set up an empty collection.

        `count` is the number of training reports in earlier attempts of the trial, which is equal on every rank.
        """
        self.count = count
        self._waiting: list[Reported] = []
        self._newest: tuple[int, bool] = (-1, False)  # step of the newest training report, and whether it is kept

    def __len__(self) -> int:
        """Return the number of pending reports."""
        return len(self._waiting)

    @property
    def validates(self) -> bool:
        """Return True if any of the pending reports is a validation."""
        return any(each.kind == "validation" for each in self._waiting)

    def add(self, kind: Kind, step: int, epoch: float, metrics: Mapping[str, Any], weight: float) -> None:
        """Add values that were reported at a step; raise InvalidDefinition if one is not a number.

        `epoch` is the number of epochs completed then, with a fraction; `weight` is the number of samples of which the
        values are means. The first `KEPT` training reports are all kept; of later ones every tenth until ten times
        `KEPT`, then every hundredth, and so on. This depends only on their count, so that all ranks keep the same.
        """
        if kind == "training" and not self._keeps(step):
            return
        values = {str(name): number(str(name), value) for name, value in metrics.items()}
        self._waiting.append(Reported(kind, step, epoch, values, weight))

    def take(self) -> list[Reported]:
        """Return the pending reports and clear them."""
        taken, self._waiting = self._waiting, []
        return taken

    def _keeps(self, step: int) -> bool:
        newest, kept = self._newest
        if step != newest:
            self.count += 1
            kept = keeps(self.count)
            self._newest = step, kept
        return kept


def merged(per_rank: Iterable[Sequence[Reported]]) -> list[Report]:
    """Return one report for each step and kind, merged from those of all ranks and sorted by step.

    Values are averaged over the ranks, weighted by samples.
    """
    together: dict[tuple[int, Kind], list[Reported]] = {}
    for rank in per_rank:
        for each in rank:
            together.setdefault((each.step, each.kind), []).append(each)
    return [
        Report(kind=kind, step=step, epoch=found[0].epoch, metrics=_means(found))
        for (step, kind), found in sorted(together.items(), key=lambda item: item[0])
    ]


def _means(found: Sequence[Reported]) -> dict[str, float]:
    names = dict.fromkeys(name for each in found for name in each.metrics)
    return {
        name: _mean([(each.metrics[name], each.weight) for each in found if name in each.metrics]) for name in names
    }


def _mean(pairs: Sequence[tuple[float, float]]) -> float:
    if len(pairs) == 1:
        return pairs[0][0]
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total
