"""Save and restore the state of a Trainer and its callbacks, besides model, optimizer and schedule."""

from __future__ import annotations

import dataclasses
from typing import Any

from kernel_backend.checkpoints.writer import flatten
from kernel_backend.errors import DaylightError
from kernel_backend.runner.external_loop.parts import part_of
from kernel_backend.runner.metrics.join import mapped

_HELD = (
    "epoch", "global_step", "total_flos", "log_history", "best_metric", "best_global_step", "num_input_tokens_seen",
)  # fmt: skip
_SUMS = ("_tr_loss", "_total_loss_scalar", "_globalstep_last_logged", "current_flos")


class _HeldState:
    """Checkpoint part whose state is fixed just before `train()` ends.

    The end of `train()` adds to the sums of losses, logs a summary and calls `on_train_end`. A training that is resumed
    at its end repeats that, and one that is resumed with more epochs must not contain it.
    """

    def __init__(self) -> None:
        self._ended: dict[str, Any] | None = None

    def end(self) -> None:
        """Fix the current state: later checkpoints hold it unchanged."""
        self._ended = mapped(lambda each: each.detach().clone(), self._state())

    def state_dict(self) -> dict[str, Any]:
        """Return the current state, or the fixed one after `end`."""
        return self._state() if self._ended is None else self._ended

    def _state(self) -> dict[str, Any]:
        raise NotImplementedError


class Progress(_HeldState):
    """Checkpoint part for a Trainer's counters, logs, and sums of losses since the last log."""

    def __init__(self, trainer: Any) -> None:
        super().__init__()
        self._trainer = trainer

    def _state(self) -> dict[str, Any]:
        trainer = self._trainer
        state = {name: value for name, value in dataclasses.asdict(trainer.state).items() if name in _HELD}
        sums = {name: getattr(trainer, name) for name in _SUMS}
        return {"state": part_of("", state).state_dict(), "sums": part_of("", sums).state_dict()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore the Trainer's state and sums."""
        for name, owner in (("state", self._trainer.state), ("sums", self._trainer)):
            found: dict[str, Any] = {}
            part_of("", found).load_state_dict(saved[name])
            for key, value in found.items():
                setattr(owner, key, value.to(self._trainer.args.device) if key == "_tr_loss" else value)


class Callbacks(_HeldState):
    """Checkpoint part for those attributes of a Trainer's callbacks that a checkpoint can hold."""

    def __init__(self, callbacks: list[Any]) -> None:
        super().__init__()
        self._callbacks = {f"{place} {type(each).__name__}": each for place, each in enumerate(callbacks)}
        self._loaded: dict[str, Any] = {}

    def _state(self) -> dict[str, Any]:
        return {name: part_of("", _plain(each)).state_dict() for name, each in self._callbacks.items()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore the attributes of those callbacks that still exist."""
        self._loaded = saved
        self.apply()

    def apply(self) -> None:
        """Set the attributes to the loaded state, if there is one; it may be called several times."""
        for name, each in self._callbacks.items():
            if name in self._loaded:
                found: dict[str, Any] = {}
                part_of("", found).load_state_dict(self._loaded[name])
                vars(each).update(found)


def _plain(callback: Any) -> dict[str, Any]:
    found = {}
    for name, value in vars(callback).items():
        try:
            flatten(part_of("", {name: value}).state_dict())
        except (DaylightError, TypeError, ValueError):
            continue
        found[name] = value
    return found
