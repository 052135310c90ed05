"""Define the Lightning callback with which a job follows the steps and validations of its Trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel_backend.runner.forms.lightning.api import Callback


class RankCallback(Callback):
    """Callback in which the ranks agree what to do; called before the user's callbacks and before values are logged."""

    def __init__(self, agree: Callable[[], None], validated: Callable[[], None]) -> None:
        """Set up the callback; it calls `agree` after each batch and `validated` after each validation."""
        self._agree, self._validated = agree, validated

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        """Agree with the other ranks whether to report, save or stop after this step."""
        self._agree()

    def on_validation_end(self, *args: Any, **kwargs: Any) -> None:
        """Store the values that a validation has logged."""
        self._validated()
