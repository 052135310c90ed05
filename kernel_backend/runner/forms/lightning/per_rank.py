"""Save and restore what differs between the ranks of a Lightning training: running means, attributes, metric states."""

from __future__ import annotations

from typing import Any

from torch import nn

from kernel_backend.runner.determinism.retained_state import RetainedState
from kernel_backend.runner.forms.lightning.attributes import Attributes
from kernel_backend.runner.forms.lightning.results import Results


class PerRank:
    """Checkpoint part for the state of this rank alone: running means, attributes and metric states."""

    def __init__(self, trainer: Any, results: Results, attributes: Attributes, kept: RetainedState) -> None:
        """Set up the checkpoint part for a Trainer, its logged values (`results`) and the user's `attributes`.

        `kept` is what the user's code keeps elsewhere from step to step.
        """
        self._trainer, self._values, self._attributes, self._kept = trainer, results, attributes, kept
        self._kept_saved: dict[str, Any] = {}
        self.within_epoch = False  # the loaded state was saved in the middle of an epoch
        self._results: list[dict[str, Any]] | None = None
        self._current_fx: str | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return copies of this rank's running means, attributes and metric states."""
        progress = self._trainer.fit_loop.epoch_progress.current
        return {
            "results": self._values.state_dict(),
            "current_fx": self._trainer._logger_connector._current_fx,
            "within": bool(progress.ready > progress.completed),
            "own": self._attributes.state_dict(),
            "kept": self._kept.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep a saved state, which `apply` then writes into the Trainer and the user's objects."""
        self._results, self._current_fx = state["results"], state["current_fx"]
        self.within_epoch = state["within"]
        self._attributes.load_state_dict(state["own"])
        self._kept_saved = state.get("kept", {})  # an older version saved none

    def begin(self, seed: int, rank: int, step: int) -> None:
        """Do nothing, where a checkpoint has no state of this rank: the rank's running means then start from zero."""

    def apply(self) -> None:
        """Restore the stored state; it may be called several times."""
        self._attributes.apply()
        self._kept.load_state_dict(self._kept_saved)
        if self._results is None:
            return
        connector = self._trainer._logger_connector
        connector._current_fx = self._current_fx
        connector._first_loop_iter = False if self.within_epoch else None
        self._values.load_state_dict(self._results, self._trainer.strategy.reduce, self._metric_at)

    def _metric_at(self, path: str) -> Any:
        """Return the torchmetrics object at a path in the LightningModule, such as `net.accuracy`."""
        found: Any = self._trainer.lightning_module
        for name in path.split("."):
            found = found[name] if isinstance(found, nn.ModuleDict) else getattr(found, name)
        return found
