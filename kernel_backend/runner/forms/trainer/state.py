"""Wrap the state of a Trainer and its callbacks, besides model, optimizer and schedule, as checkpoint parts."""

from __future__ import annotations

import dataclasses
from typing import Any

from kernel_backend.checkpoints.writer import flatten
from kernel_backend.errors import DaylightError
from kernel_backend.runner.external_loop.parts import part_of

_HELD = (
    "epoch", "global_step", "total_flos", "log_history", "best_metric", "best_global_step", "num_input_tokens_seen",
)  # fmt: skip
_SUMS = ("_tr_loss", "_total_loss_scalar", "_globalstep_last_logged", "current_flos")


class Progress:
    """Checkpoint part for a Trainer's position, logs and loss sums."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """Return the Trainer's state, and its sums since the last log."""
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


class Callbacks:
    """Checkpoint part for plain attributes of a Trainer's callbacks."""

    def __init__(self, callbacks: list[Any]) -> None:
        self._callbacks = {f"{place} {type(each).__name__}": each for place, each in enumerate(callbacks)}
        self._loaded: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the attributes of each callback that a checkpoint can hold."""
        return {name: part_of("", _plain(each)).state_dict() for name, each in self._callbacks.items()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore the attributes of callbacks that still exist."""
        self._loaded = saved
        self.apply()

    def apply(self) -> None:
        """Set the attributes to the loaded state, if any; may be called several times."""
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
