"""Lightning's loops of epochs and steps, with a boundary after each step at which a training stops and resumes."""

from __future__ import annotations

from typing import Any, Protocol

from kernel_backend.runner.forms.lightning.api import FitLoop, TrainingEpochLoop


class Course(Protocol):
    """Methods that Lightning's loops call at their boundaries; all ranks call each."""

    trainer: Any

    @property
    def resumes_within_epoch(self) -> bool:
        """Return True at the beginning of an epoch in whose middle the training resumes."""

    def resumed_within_epoch(self) -> None:
        """Mark that the epoch in whose middle the training resumes goes on."""

    def begin(self) -> None:
        """Restore the training, before the hooks that begin it."""

    def begun(self) -> None:
        """Restore again what those hooks have changed."""

    def end_step(self) -> None:
        """Count a step."""

    def boundary(self, ends: bool) -> None:
        """Report, save or leave after a step (`ends`: the last of an epoch)."""

    def finish(self) -> None:
        """Commit the last checkpoint."""


class Steps(TrainingEpochLoop):
    """Loop over the steps of an epoch."""

    def __init__(self, training: Course, min_steps: int | None, max_steps: int) -> None:
        """Set up the loop of the training's Trainer."""
        super().__init__(training.trainer, min_steps, max_steps)
        self._training = training

    def reset(self) -> None:
        """Begin an epoch; one that is resumed in its middle keeps its counters."""
        if self._training.resumes_within_epoch:
            self._training.resumed_within_epoch()
        else:
            super().reset()

    def on_advance_end(self, data_fetcher: Any) -> None:
        """End a step; unless it is the last of its epoch, the training may stop here."""
        super().on_advance_end(data_fetcher)
        self._training.end_step()
        if not self.done:
            self._training.boundary(ends=False)

    def _broadcast_sigterm_tensor(self) -> None:
        """Do nothing: ranks agree on a release in another way."""


class Epochs(FitLoop):
    """Loop over the epochs."""

    def __init__(self, training: Course, steps: Steps, min_epochs: int | None, max_epochs: int | None) -> None:
        """Set up the loop of the training's Trainer."""
        super().__init__(training.trainer, min_epochs, max_epochs)
        self._training = training
        self.epoch_loop = steps

    def on_run_start(self) -> None:
        """Restore the training before the hooks that begin it, and again what they have changed."""
        self._training.begin()
        super().on_run_start()
        self._training.begun()

    def on_advance_start(self) -> None:
        """Begin an epoch, unless it is resumed in its middle."""
        if not self._training.resumes_within_epoch:
            super().on_advance_start()

    def on_advance_end(self) -> None:
        """End an epoch; unless it is the last, the training may stop here."""
        super().on_advance_end()
        if not self.done:
            self._training.boundary(ends=True)

    def on_run_end(self) -> None:
        """End the training and commit its last checkpoint."""
        super().on_run_end()
        self._training.finish()
