"""Evaluate reported values: track the best validation, stop early after `--patience`, detect non-finite values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from torch import nn

from kernel_backend.definition.reported.missing_metric import missing_metric, needed_metric
from kernel_backend.errors import InvalidDefinition, NotFinite
from kernel_backend.model.experiment import Config
from kernel_backend.runner.loop.finite import IN_A_ROW, bad_parameter

NOT_FINITE_IN_A_ROW = 3  # number of validations
_ADVICE = "A lower learning rate or clipped gradients may help; --on-nan note trains on"


class Judgement:
    """Evaluation of the values that a loop reports: best validation so far, early stopping, non-finite losses.

    It depends on the values alone, so that ranks which receive equal values decide equally.
    """

    def __init__(
        self,
        config: Config,
        note: Callable[[str, Literal["info", "warning"]], None],
        way: str = "",
        *,
        advice: str = _ADVICE,
        lacking: int = 2,
    ) -> None:
        """Set up the evaluation, with no validation so far.

        `note` shows a message to the user. `way` says how to report a metric, for the error raised when a
        validation lacks one that is needed, and `advice` what to do about values that are not finite. That a validation
        lacks the metric is told at the `lacking`-th of them, or at the end.
        """
        self._config, self._note, self._way, self._advice, self._lacks = config, note, way, advice, lacking
        self.best: float | None = None
        self.validated = False  # there was a validation, in this attempt or an earlier one
        self._waited = 0  # validations in a row that were not the best
        self._not_finite = 0  # validations in a row whose metric was not finite
        self._broken: dict[str, tuple[int, int]] = {}  # by loss: step since which it is not finite, and reports of that
        self._noted = False  # a non-finite training value was noted
        self._trained: dict[str, None] = {}  # names of the values reported in training, in order
        self._lacking = 0  # validations without the metric, as long as none has had it
        self._reported: dict[str, None] = {}  # names that these have reported, in order

    def state(self) -> dict[str, Any]:
        """Return the best value and the counts of validations as JSON, for a checkpoint."""
        return {
            "best": self.best,
            "validated": self.validated,
            "waited": self._waited,
            "not_finite": self._not_finite,
        }

    def restore(self, saved: Mapping[str, Any], of_another: bool) -> None:
        """Restore what `state` returned.

        With `of_another`, the state comes from another experiment: then the validations counted for `--patience` start
        at zero.
        """
        self.best, self.validated = saved["best"], saved.get("validated", False)
        self._waited = 0 if of_another else saved.get("waited", 0)
        self._not_finite = saved.get("not_finite", 0)

    @property
    def stopped(self) -> bool:
        """Return True if `--patience` is given and the last that many validations in a row brought no improvement."""
        patience = None if self._config.await_evaluation else self._config.patience
        return patience is not None and self._waited >= patience

    def training(self, step: int, metrics: Mapping[str, float]) -> None:
        """Check the values reported at a training step: warn about the first that is not finite.

        With `--on-nan stop` (the default), raises NotFinite when a loss was not finite in several reports in a row.
        """
        self._trained |= dict.fromkeys(metrics)
        for name, value in metrics.items():
            if math.isfinite(value):
                self._broken.pop(name, None)
                continue
            if not self._noted:
                self._noted = True
                self._note(f"{name} is {value} at step {step}", "warning")
            if not _is_loss(name) or self._config.on_nan != "fail":
                continue
            since, count = self._broken.get(name, (step, 0))
            self._broken[name] = since, count + 1
            if count + 1 >= IN_A_ROW:
                raise NotFinite(f"{name} is {value} since step {since}, in {IN_A_ROW} reports in a row. {self._advice}")

    def validation(
        self, step: int, metrics: Mapping[str, float], *, counts: bool = True, last: bool = False, place: str = ""
    ) -> bool:
        """Record a validation; return True if its value of `--metric` is the best so far.

        If `metrics` lacks that metric, False is returned, and the user is warned the second time: what a program prints
        between two loops is no validation of the second one. But InvalidDefinition is raised if a search or
        `--patience` needs the metric. Raises NotFinite if the metric was not finite several times in a row. An extra
        validation (`counts=False`) is compared alone. `last` is True if the training ends with this step anyway, and
        `place` is how to name the step in a note.
        """
        self.validated = True
        metric = self._config.metric
        if metric.name not in metrics:
            self._missing(metrics)
            return False
        value = metrics[metric.name]
        if counts:
            self._check_finite(step, value)
        improved = metric.better(value, self.best)
        if improved:
            self.best = value
        if counts:
            self._waited = 0 if improved else self._waited + 1
        if counts and self.stopped and self._waited == self._config.patience and not last:
            best = "none was finite" if self.best is None else f"the best was {self.best:.6g}"
            count = f"{self._waited} validations" if self._waited > 1 else "a validation"
            self._note(
                f"stopped early {place or f'at step {step}'}: {count} without a better {metric.name}; {best}", "info"
            )
        return improved

    def must_have_validated(self, step: int) -> None:
        """Raise InvalidDefinition if a trial of a search, which compares validations, has had none until `step`."""
        if self._config.search_needs_validations and not self.validated:
            only = f", only {', '.join(self._trained)} in training" if self._trained else ""
            raise InvalidDefinition(
                f"a search compares validations by --metric {self._config.metric.name}, and none was reported until "
                f"step {step}{only}: {self._way}"
            )

    def end(self, modules: Iterable[nn.Module]) -> None:
        """Warn the user if the only validation lacked the metric; called at the end of the training.

        Raises NotFinite if both a loss and some weights are not finite.
        """
        if 0 < self._lacking < self._lacks and self.best is None:
            self._note(missing_metric(self._config, list(self._reported)), "warning")
        bad = next(filter(None, map(bad_parameter, modules)), "") if self._broken else ""
        if bad:
            name, (since, _) = next(iter(self._broken.items()))
            raise NotFinite(f"{name} is not finite since step {since}, and {bad} at the end. {self._advice}")

    def _missing(self, metrics: Mapping[str, float]) -> None:
        if self._config.needs_validations:
            raise InvalidDefinition(needed_metric(self._config, list(metrics), self._way))
        self._lacking += 1
        self._reported |= dict.fromkeys(metrics)
        if self._lacking == self._lacks and self.best is None:
            self._note(missing_metric(self._config, list(self._reported)), "warning")

    def _check_finite(self, step: int, value: float) -> None:
        self._not_finite = 0 if math.isfinite(value) else self._not_finite + 1
        name = self._config.metric.name
        if self._not_finite == 1:
            self._note(f"the validation's {name} is {value} at step {step}", "warning")
        if self._not_finite >= NOT_FINITE_IN_A_ROW and self._config.on_nan == "fail":
            raise NotFinite(
                f"the validation's {name} is {value} at step {step}, and was not finite in the "
                f"{NOT_FINITE_IN_A_ROW - 1} validations before: nothing can be chosen by it. {self._advice}"
            )


def _is_loss(name: str) -> bool:
    """Return True for the name of a loss, such as `loss`, `train_loss`, `train/loss` or Lightning's `loss_step`."""
    return "loss" in re.split(r"[^a-z]+", name.lower())
