"""Call the user's callbacks within Keras' `fit`, and KerasLoop's methods before and after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras

if TYPE_CHECKING:
    from kernel_backend.runner.forms.keras.loop import KerasLoop


class JobCallbacks(keras.callbacks.CallbackList):  # type: ignore[misc]
    """Callback list for Keras' `fit`: it calls the user's callbacks, and a KerasLoop, which reports and saves steps."""

    def __init__(self, loop: KerasLoop, callbacks: Sequence[Any], **options: Any) -> None:
        super().__init__(list(callbacks), add_history=True, **options)
        # All callbacks run in this thread, as they are part of the training.
        self._async_train = self._async_test = self._async_predict = False
        self._loop = loop

    def on_train_begin(self, logs: Any = None) -> None:
        """Call the user's callbacks, then begin the training in the KerasLoop."""
        super().on_train_begin(logs)
        self._loop.begin_training(self.callbacks)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin the epoch in the KerasLoop, then call the user's callbacks.

        If the epoch is resumed in the middle, the callbacks are called first: what they change is then restored.
        """
        if self._loop.resumes_within_epoch:
            super().on_epoch_begin(epoch, logs)
            self._loop.begin_epoch(self.callbacks)
        else:
            self._loop.begin_epoch(self.callbacks)
            super().on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin a step in the KerasLoop, then call the user's callbacks.

        Nothing is done for a batch that an earlier attempt has trained.
        """
        if not self._loop.skips(batch):
            self._loop.begin_step()
            super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Call the user's callbacks with the logs that the KerasLoop returns, then end the step in the KerasLoop.

        Nothing is done for a batch that an earlier attempt has trained.
        """
        if not self._loop.skips(batch):
            super().on_train_batch_end(batch, self._loop.trained(logs))
            self._loop.end_step()

    def on_test_begin(self, logs: Any = None) -> None:
        """Begin a validation in the KerasLoop, then call the user's callbacks."""
        self._loop.begin_validation()
        super().on_test_begin(logs)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin a batch of a validation in the KerasLoop, then call the user's callbacks."""
        self._loop.begin_validation_batch()
        super().on_test_batch_begin(batch, logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """End a batch of a validation in the KerasLoop; the user's callbacks get the logs that it returns."""
        super().on_test_batch_end(batch, self._loop.validated(batch, logs))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Call the user's callbacks, then end the epoch and its last step in the KerasLoop."""
        super().on_epoch_end(epoch, logs)
        self._loop.end_epoch(logs)
