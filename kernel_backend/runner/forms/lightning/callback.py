"""Define the Lightning callback by which a job follows the steps and validations of its Trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel_backend.runner.forms.lightning.api import Callback


class RankCallback(Callback):
    """Daylight's callback after each step and validation; called before the user's, and before Lightning logs."""

    def __init__(self, agree: Callable[[], None], validated: Callable[[], None]) -> None:
        """Set up the callback; it calls `agree` after each batch and `validated` after each validation."""
        self._agree, self._validated = agree, validated

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        """Call `agree`, by which the ranks decide together whether to report, save or stop after this step."""
        self._agree()

    def on_validation_end(self, *args: Any, **kwargs: Any) -> None:
        """Call `validated`, which stores the values that a validation has logged."""
        self._validated()
