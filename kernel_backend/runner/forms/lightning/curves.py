"""Collect the values that a module logs, and report them; values of a step are combined over all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from torch import Tensor

from kernel_backend.model.experiment import Metric
from kernel_backend.model.reports import Report
from kernel_backend.runner.ranks.backends import Ranks

Of = Literal["step", "epoch", "validation"]


class Curves:
    """Values that a Lightning module has logged and that are not reported yet, by name."""

    def __init__(self, ranks: Ranks, metric: Metric) -> None:
        """Set up an empty collection of logged values; a validation's are named as `metric` is spelled."""
        self._ranks, self._metric = ranks, metric
        self._values: dict[Of, dict[str, float]] = {"step": {}, "epoch": {}, "validation": {}}
        self._reductions: dict[str, str] = {}

    def take(self, of: Of, metrics: Mapping[str, float], reductions: Mapping[str, str] = MappingProxyType({})) -> None:
        """Store logged values: those of a step, or means over an epoch or a validation, which are equal on all ranks.

        `of` is the kind: "step", "epoch" or "validation". `reductions` says how values of a step are combined over the
        ranks, by name, where it is not their mean over the samples: `sum`, `min` or `max`.
        """
        self._values[of] |= metrics
        self._reductions |= reductions

    def reports(
        self, step: int, epoch: float, loss: Tensor | float | None, samples: int, due: bool
    ) -> Iterator[Report]:
        """Yield the stored values of steps and epochs, with the loss, and those of a validation, and discard them.

        The former are reported if `due` is True, or if values of an epoch are stored. All ranks call it; values of
        steps are combined over the ranks. `samples` is the number of samples in this rank's share, and `loss` the mean
        over the global batch, None if there is none.
        """
        if due or self._values["epoch"]:
            values = self._means(self._given("step"), samples) | self._given("epoch")
            if loss is not None:
                values = {"loss": float(loss)} | values
            if values:
                yield Report(kind="training", step=step, epoch=epoch, metrics=values)
        if validation := self._given("validation"):
            yield Report(kind="validation", step=step, epoch=epoch, metrics=self._metric.spelled(validation))

    def _given(self, of: Of) -> dict[str, float]:
        found, self._values[of] = self._values[of], {}
        return found

    def _means(self, values: Mapping[str, float], samples: int) -> dict[str, float]:
        ranks = self._ranks
        if ranks.size == 1:
            return dict(values)
        per_rank = ranks.all_gather_object((dict(values), samples, self._reductions))
        # A rank without samples has repeated those of others.
        counted = [each for each in per_rank if each[1]] or per_rank[:1]
        found: dict[str, float] = {}
        for name in dict.fromkeys(name for each, _, _ in counted for name in each):
            pairs = [(each[name], count or 1) for each, count, _ in counted if name in each]
            reduction = next((each[name] for _, _, each in counted if name in each), "mean")
            found[name] = _REDUCE[reduction](pairs)
        return found


def _mean(pairs: Sequence[tuple[float, int]]) -> float:
    return sum(value * count for value, count in pairs) / sum(count for _, count in pairs)


def _of_values(reduce: Callable[[Iterable[float]], float]) -> Callable[[Sequence[tuple[float, int]]], float]:
    return lambda pairs: reduce(value for value, _ in pairs)


# How values of a step, each with its rank's number of samples, are combined over the ranks.
_REDUCE: Mapping[str, Callable[[Sequence[tuple[float, int]]], float]] = {
    "mean": _mean,
    "sum": _of_values(sum),
    "min": _of_values(min),
    "max": _of_values(max),
}
