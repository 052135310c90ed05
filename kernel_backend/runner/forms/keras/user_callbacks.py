"""Choose which of the user's callbacks run on a rank, and find those that read the logs of each batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from kernel_backend.errors import InvalidDefinition

# Callbacks that write files, which only rank 0 runs.
_WRITERS = (
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.TensorBoard,
    keras.callbacks.CSVLogger,
    keras.callbacks.RemoteMonitor,
)


def callbacks_of(made: Any, rank: int, resumes: bool) -> list[Any]:
    """Return the user's Keras callbacks that this rank must run; raise InvalidDefinition if one is not a callback.

    `made` is the result of the user's function `callbacks`: a callback, a list of them, or None. Callbacks that write
    files run only on rank 0; other ranks get a callback without effect in their place, since checkpoints identify the
    states of callbacks by index. BackupAndRestore is left out, as Daylight itself saves and restores the training. If
    the training continues from a checkpoint (`resumes`), CSV loggers append to their files.
    """
    found = made if isinstance(made, list | tuple) else [made] if made is not None else []
    for each in found:
        if not isinstance(each, keras.callbacks.Callback):
            raise InvalidDefinition(
                f"callbacks has a {type(each).__name__}: give a list of instances of keras.callbacks.Callback"
            )
        if isinstance(each, keras.callbacks.CSVLogger) and resumes:
            each.append = True
    own = [each for each in found if not isinstance(each, keras.callbacks.BackupAndRestore)]  # Daylight does that
    return [each if rank == 0 or not isinstance(each, _WRITERS) else keras.callbacks.Callback() for each in own]


def watches_batches(callbacks: Sequence[Any]) -> bool:
    """Return True if one of the user's callbacks reads the logs of each batch."""
    names = ("on_train_batch_end", "on_batch_end", "on_test_batch_end")
    base = keras.callbacks.Callback
    return any(
        (not type(each).__module__.startswith("keras.") and _overrides(each, names, base))
        or isinstance(each, keras.callbacks.TerminateOnNaN | keras.callbacks.LambdaCallback)
        for each in callbacks
    )


def _overrides(callback: Any, names: Sequence[str], base: type) -> bool:
    return any(getattr(type(callback), name) is not getattr(base, name) for name in names)
