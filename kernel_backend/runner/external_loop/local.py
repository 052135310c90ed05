"""Run a user's loop in the notebook, without a job: nothing is saved, and reports are printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernel_backend.model.experiment import Config
from kernel_backend.model.reports import Kind
from kernel_backend.runner.data import Batch
from kernel_backend.runner.external_loop.run_methods import RunMethods
from kernel_backend.runner.external_loop.training import LoopPosition
from kernel_backend.runner.external_loop.user_loop import LoopSettings
from kernel_backend.runner.metrics.sums import number

_FIRST, _PAUSE_S = 20, 0.5  # number of training reports that are all printed; minimum interval between later ones


class PrintedTraining:
    """Substitute for a job's training when a loop runs in the notebook: reports are printed, and nothing is saved.

    It has the methods that a job's training has, so that the same loop runs in both.
    """

    needs_pairs = False

    def __init__(self) -> None:
        self.position = LoopPosition()
        self.in_step = False
        self.expected_steps: int | None = None
        self.form_state: Callable[[], dict[str, Any]] = dict
        self._printed, self._newest = 0, 0.0

    def begin(self) -> None:
        """Do nothing: there is nothing to restore."""

    def register(self, name: str, value: Any) -> bool:
        """Ignore the value and return False: without checkpoints nothing is restored."""
        return False

    def request_checkpoint(self) -> None:
        """Do nothing, as nothing is saved."""

    def begin_step(self, samples: tuple[int, int] | None = None) -> None:
        """Begin a training step; `samples` is ignored, as there is only one rank."""
        self.in_step = True

    def end_step(self, last: bool = False) -> None:
        """End a training step; `last` is True for the last of its epoch."""
        self.abandon_step()

    def abandon_step(self) -> None:
        """End a training step that the loop may have left early, as with `break`."""
        self.position.step += 1
        self.in_step = False

    def end_epoch(self, last: bool = False) -> None:
        """End an epoch; `last` is True for the last one of the training."""
        self.position.epoch += 1

    def report(
        self, kind: Kind, values: Mapping[str, Any], step: int | None = None, weight: float | None = None
    ) -> None:
        """Print the values of a training step or validation. Training values are printed at most every half second.

        The first training reports are all printed.
        """
        now = time.monotonic()
        if kind == "training":
            self._printed += 1
            if self._printed > _FIRST and now - self._newest < _PAUSE_S:
                return
            self._newest = now
        label = self.position.step + self.in_step if step is None else step
        told = "  ".join(f"{name} {number(str(name), value):.6g}" for name, value in values.items())
        print(f"{kind} at step {label}: {told}")

    def take(self, batch: Batch) -> None:
        """Do nothing, as no samples are recorded."""

    def tick_validation(self) -> None:
        """Do nothing: in a notebook, no launcher watches for hangs."""


def local_methods() -> RunMethods:
    """Return the methods of the object `run` for a notebook: they print reports, and train with default options."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    settings = LoopSettings(Config(), rank=0, world=1, device=device, note=print, in_job=False)
    return RunMethods(PrintedTraining(), settings, {})
