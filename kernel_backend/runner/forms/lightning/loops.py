"""Extend Lightning's loops over epochs and steps, so that a training can stop after each step and resume there."""

from __future__ import annotations

from typing import Any, Protocol

from kernel_backend.runner.forms.lightning.api import FitLoop, TrainingEpochLoop


class Course(Protocol):
    """Training that Lightning's loops notify between steps and epochs, on all ranks."""

    trainer: Any

    @property
    def resumes_within_epoch(self) -> bool:
        """Return True at the start of an epoch in which earlier attempts have trained some steps."""

    def resumed_within_epoch(self) -> None:
        """Record that the partly trained epoch is being continued."""

    def begin(self) -> None:
        """Restore the training from its checkpoint, before Lightning calls its start hooks."""

    def begun(self) -> None:
        """Restore once more what Lightning's start hooks have changed since `begin`."""

    def end_step(self, last: bool) -> None:
        """Count a completed step; unless it is the `last` of its epoch, report, save or leave as the ranks agree."""

    def end_epoch(self) -> None:
        """Report, save or leave after an epoch, unless it is the last of all, as the ranks agree."""

    def finish(self) -> None:
        """Report values that have not been reported yet, and commit the final checkpoint."""


class Steps(TrainingEpochLoop):
    """Lightning's loop over the steps of an epoch, changed so that it can stop and resume between two steps."""

    def __init__(self, training: Course, min_steps: int | None, max_steps: int) -> None:
        """Set up the loop, which notifies `training` after each step.

        `min_steps` and `max_steps` are Lightning's limits on the steps of the whole training.
        """
        super().__init__(training.trainer, min_steps, max_steps)
        self._training = training

    def reset(self) -> None:
        """Begin an epoch: reset the loop's counters, unless the epoch is resumed in the middle."""
        if self._training.resumes_within_epoch:
            self._training.resumed_within_epoch()
        else:
            super().reset()

    def on_advance_end(self, data_fetcher: Any) -> None:
        """End a step; unless it is the epoch's last, report, save or end the training as the ranks agree."""
        super().on_advance_end(data_fetcher)
        self._training.end_step(last=self.done)

    def _broadcast_sigterm_tensor(self) -> None:
        """Do nothing where Lightning sends a SIGTERM on to other ranks: Daylight's ranks exchange requests to exit."""


class Epochs(FitLoop):
    """Lightning's loop over epochs, changed so that it can stop and resume between two epochs."""

    def __init__(self, training: Course, steps: Steps, min_epochs: int | None, max_epochs: int | None) -> None:
        """Set up the loop, which notifies `training` after each epoch, and runs `steps` in each epoch.

        `min_epochs` and `max_epochs` are Lightning's limits on the epochs of the training.
        """
        super().__init__(training.trainer, min_epochs, max_epochs)
        self._training = training
        self.epoch_loop = steps

    def on_run_start(self) -> None:
        """Restore the training, call the start hooks, then restore what the hooks have changed."""
        self._training.begin()
        super().on_run_start()
        self._training.begun()

    def on_advance_start(self) -> None:
        """Begin an epoch, unless it is resumed in the middle."""
        if not self._training.resumes_within_epoch:
            super().on_advance_start()

    def on_advance_end(self) -> None:
        """End an epoch; unless it is the last, report, save or end the training as the ranks agree."""
        super().on_advance_end()
        if not self.done:
            self._training.end_epoch()

    def on_run_end(self) -> None:
        """Call Lightning's end hooks, report the last values and commit the final checkpoint."""
        super().on_run_end()
        self._training.finish()
