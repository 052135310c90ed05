"""Save and restore what differs between the ranks of a Lightning training: running means, attributes, metric states."""

from __future__ import annotations

from typing import Any

from torch import nn

from kernel_backend.runner.forms.lightning.attributes import Attributes
from kernel_backend.runner.forms.lightning.results import Results


class PerRank:
    """Checkpoint part for the state of this rank alone: running means, attributes and metric states."""

    def __init__(self, trainer: Any, results: Results, attributes: Attributes) -> None:
        """Set up the checkpoint part for a Trainer, its logged values (`results`) and the user's `attributes`."""
        self._trainer, self._values, self._attributes = trainer, results, attributes

    def state_dict(self) -> dict[str, Any]:
        """Return copies of this rank's running means, attributes and metric states."""
        return {
            "results": self._values.state_dict(),
            "current_fx": self._trainer._logger_connector._current_fx,
            "own": self._attributes.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Write a saved state into the Trainer and the user's objects; it may be called several times."""
        self._attributes.put(state["own"])
        self._trainer._logger_connector._current_fx = state["current_fx"]
        self._values.load_state_dict(state["results"], self._trainer.strategy.reduce, self._metric_at)

    def begin(self, seed: int, rank: int, step: int) -> None:
        """Do nothing, where a checkpoint has no state of this rank: the rank's running means then start from zero."""

    def _metric_at(self, path: str) -> Any:
        """Return the torchmetrics object at a path in the LightningModule, such as `net.accuracy`."""
        found: Any = self._trainer.lightning_module
        for name in path.split("."):
            found = found[name] if isinstance(found, nn.ModuleDict) else getattr(found, name)
        return found
