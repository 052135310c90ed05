"""Save and restore the progress of Lightning's Trainer: counters, logged values, callbacks."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kernel_backend.checkpoints.writer import flatten
from kernel_backend.errors import DaylightError
from kernel_backend.snapshots.trainers import TrainedTrainer


class TrainerState:
    """Checkpoint part for a Trainer's state that is equal on all ranks. A loaded state is restored by `apply`."""

    def __init__(self, trainer: Any) -> None:
        """Set up the checkpoint part for a Trainer."""
        self._trainer = trainer
        self._loaded: dict[str, Any] | None = None
        self.within_epoch = False  # the restored state was saved in the middle of an epoch

    def state_dict(self) -> dict[str, Any]:
        """Return the counters of the loops, the metrics that callbacks have received, and the callbacks' states."""
        trainer, connector = self._trainer, self._trainer._logger_connector
        epoch = trainer.fit_loop.epoch_progress.current
        return {
            "within_epoch": bool(epoch.ready > epoch.completed),
            "loops": {name: each.state_dict() for name, each in _counters(trainer).items()},
            "batches_that_stepped": trainer.fit_loop.epoch_loop._batches_that_stepped,
            "should_stop": trainer.should_stop,
            "callback_metrics": _copied(connector._callback_metrics),
            "logged_metrics": _copied(connector._logged_metrics),
            "callbacks": {
                each.state_key: found for each in _callbacks(trainer) if (found := holdable(each.state_dict()))
            },
            "datamodule": holdable(trainer.datamodule.state_dict()) if trainer.datamodule is not None else {},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep a saved state, which `apply` then restores."""
        self._loaded = state

    def go_on(self) -> None:
        """Clear `should_stop` in the loaded state, so that a training that a callback had stopped continues."""
        if self._loaded is not None:
            self._loaded["should_stop"] = False

    def apply(self) -> None:
        """Restore the loaded state in the Trainer; it may be called several times."""
        state, trainer = self._loaded, self._trainer
        if state is None:
            return
        for name, each in _counters(trainer).items():
            each.load_state_dict(state["loops"][name])
        trainer.fit_loop.epoch_loop._batches_that_stepped = state["batches_that_stepped"]
        trainer.should_stop = state["should_stop"]
        self.within_epoch = state["within_epoch"]
        connector = trainer._logger_connector
        connector._first_loop_iter = False if self.within_epoch else None
        connector._callback_metrics, connector._logged_metrics = (
            _copied(state[each]) for each in ("callback_metrics", "logged_metrics")
        )
        for callback in _callbacks(trainer):
            if callback.state_key in state["callbacks"]:
                callback.load_state_dict(state["callbacks"][callback.state_key])
        if trainer.datamodule is not None and state["datamodule"]:
            trainer.datamodule.load_state_dict(state["datamodule"])


class TrainedLightning(TrainedTrainer):
    """State of a Lightning Trainer; `state` is what `TrainerState.state_dict` returns."""

    def put_into(self, trainer: Any) -> None:
        """Give the module, counters, metrics and states of callbacks to a new Trainer."""
        trainer.strategy.connect(self.model)
        self.model.trainer = trainer
        restored = TrainerState(trainer)
        restored.load_state_dict(self.state)
        restored.apply()


def holdable(state: Any) -> Any:
    """Return `state` unchanged if a checkpoint can hold it, else None."""
    try:
        flatten(state)
    except DaylightError:
        return None
    return state


def _counters(trainer: Any) -> dict[str, Any]:
    epochs = trainer.fit_loop
    steps = epochs.epoch_loop
    return {
        "epochs": epochs.epoch_progress,
        "batches": steps.batch_progress,
        "schedules": steps.scheduler_progress,
        "automatic": steps.automatic_optimization.optim_progress,
        "manual": steps.manual_optimization.optim_step_progress,
        "validation": steps.val_loop.batch_progress,
    }


def _callbacks(trainer: Any) -> list[Any]:
    return [each for each in trainer.callbacks if type(each).__name__ != "RankCallback"]


def _copied(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: each.detach().clone() if isinstance(each, Tensor) else each for name, each in metrics.items()}
