"""Count the epochs of each training of a program that has several, one after another, as a teacher and its student."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel_backend.runner.forms.script.curves.curves import ReportingTraining


class OwnEpochs:
    """Listener that lets the curves of each of a program's trainings begin at its own first epoch."""

    def __init__(self, training: ReportingTraining, ended: Callable[[], int], before: Callable[[], object]) -> None:
        """Set up the listener; `ended` returns how many outermost loops have ended.

        `before` is called before the epochs are counted anew.
        """
        self._training, self._ended, self._before = training, ended, before

    def backward(self, loss: Any) -> None:
        """Begin anew if a training has ended, and another takes its first step."""
        if self._ended() != self._training.position.training:
            self.begin()

    def begin(self) -> None:
        """Count from here on."""
        self._before()
        self._training.position.begin_training(self._ended())
