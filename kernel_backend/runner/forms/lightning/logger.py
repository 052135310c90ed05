"""Collect the values that a LightningModule logs, for the reports of its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernel_backend.runner.forms.lightning.api import Logger

Logged = Callable[[Mapping[str, float]], None]


class ReportLogger(Logger):
    """Lightning logger that passes values to Daylight under the names by which they were logged."""

    def __init__(self, logged: Logged, note: Callable[[str], None]) -> None:
        """Set up the logger; `logged` receives values, `note` messages for the user."""
        super().__init__()
        self._logged, self._experiment = logged, Experiment(logged, note)

    @property
    def name(self) -> str:
        """Return the logger's name."""
        return "daylight"

    @property
    def version(self) -> str:
        """Return an empty string, as there are no versions."""
        return ""

    @property
    def experiment(self) -> Any:
        """Return an object with the `add_scalar` of TensorBoard's SummaryWriter."""
        return self._experiment

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Pass values on, except the epoch that Lightning adds."""
        self._logged({name: float(value) for name, value in metrics.items() if name != "epoch"})

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: hyperparameters are recorded with the experiment."""


class Experiment:
    """Replacement for another logger's experiment: scalars are reported, other calls are noted once and ignored."""

    def __init__(self, logged: Logged, note: Callable[[str], None]) -> None:
        self._logged, self._note = logged, note
        self._told: set[str] = set()

    def add_scalar(self, tag: str, scalar_value: Any, *args: Any, **kwargs: Any) -> None:
        """Report a scalar."""
        self._logged({tag: float(scalar_value)})

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
