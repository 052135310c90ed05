"""Bring what a job has made of a framework's Trainer into a Trainer of the notebook, which cannot travel itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, repr=False)
class TrainedTrainer:
    """State of a Trainer at the end of its training: its model, and its counters, metrics and logs."""

    model: Any
    state: Any

    def __repr__(self) -> str:
        return f"<state of the job's Trainer of {type(self.model).__name__}: put_into(trainer) brings it into another>"

    def put_into(self, trainer: Any) -> None:
        """Give this state to a new Trainer, so that it is as if it had trained."""
        raise NotImplementedError


class TrainedHuggingFace(TrainedTrainer):
    """State of a Hugging Face Trainer; `state` is its `TrainerState`."""

    def put_into(self, trainer: Any) -> None:
        """Give the model and the log to a new Trainer, which then evaluates, predicts and saves."""
        trainer.model, trainer.state = self.model, self.state
        trainer.model_wrapped = trainer.accelerator.prepare_model(self.model)  # on its device, as after train()


class TrainedLightning(TrainedTrainer):
    """State of a Lightning Trainer; `state` is what `TrainerState.state_dict` returns."""

    def put_into(self, trainer: Any) -> None:
        """Give the module, counters, metrics and states of callbacks to a new Trainer."""
        from kernel_backend.runner.forms.lightning.progress import TrainerState

        trainer.strategy.connect(self.model)
        self.model.trainer = trainer
        restored = TrainerState(trainer)
        restored.load_state_dict(self.state)
        restored.apply()
