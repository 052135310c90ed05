"""Collect the values that a LightningModule logs, so that they are reported with their steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernel_backend.runner.forms.lightning.api import Logger
from kernel_backend.runner.metrics.sums import number

Logged = Callable[[Mapping[str, float]], None]


class ReportLogger(Logger):
    """Lightning logger that passes logged values on to Daylight, under the names that the user gave them."""

    def __init__(self, logged: Logged, note: Callable[[str], None]) -> None:
        """Set up the logger; `logged` is called with the values, `note` with messages for the user."""
        super().__init__()
        self._logged, self._experiment = logged, Experiment(logged, note)

    @property
    def name(self) -> str:
        """Return "daylight", the name under which Lightning knows this logger."""
        return "daylight"

    @property
    def version(self) -> str:
        """Return "", as the logger has no versions."""
        return ""

    @property
    def experiment(self) -> Any:
        """Return an object with the `add_scalar` of TensorBoard's SummaryWriter."""
        return self._experiment

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Pass the values on, without the epoch that Lightning adds.

        `step` is ignored, as Daylight counts steps itself.
        """
        self._logged({name: float(value) for name, value in metrics.items() if name != "epoch"})

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: hyperparameters are recorded with the experiment."""


class Experiment:
    """Substitute for the `experiment` of other loggers: it reports scalars. Other calls are ignored, with one note."""

    def __init__(self, logged: Logged, note: Callable[[str], None]) -> None:
        self._logged, self._note = logged, note
        self._told: set[str] = set()

    def add_scalar(self, tag: str, scalar_value: Any, *args: Any, **kwargs: Any) -> None:
        """Report a scalar value under the name `tag`."""
        self._logged({tag: number(tag, scalar_value)})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def dropped(*args: Any, **kwargs: Any) -> None:
            if name not in self._told:
                self._told.add(name)
                self._note(
                    f"self.logger.experiment.{name} is not kept: log numbers with self.log, and pictures with run"
                )

        return dropped
