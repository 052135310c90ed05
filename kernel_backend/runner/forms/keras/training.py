"""Train a Keras cell in this rank: create the model and its data, and call `fit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.external_loop.leave import FINISHED, Leave
from kernel_backend.runner.forms.keras.callbacks import JobCallbacks
from kernel_backend.runner.forms.keras.data import SKIPPED, Shares, data_of
from kernel_backend.runner.forms.keras.loop import KerasLoop
from kernel_backend.runner.forms.keras.user_callbacks import callbacks_of


class KerasTraining:
    """Training of a Keras model in this rank, by its `fit`."""

    def __init__(self, rank: RankContext) -> None:
        """Create the model and its data; raise InvalidDefinition if one of them is not valid."""
        self._rank = rank
        _check_backend()
        with keras.device(str(rank.device)):
            functions = rank.functions
            self._train = Shares(rank, data_of(functions.result("train_data"), "train_data()"), training=True)
            self._validation: Shares | None = None
            if functions.has("validation_data"):
                data = data_of(functions.result("validation_data"), "validation_data()")
                self._validation = Shares(rank, data, training=False)
            self._model = _compiled(functions.result("model"), rank.ranks.size)
        self._loop = KerasLoop(rank, self._model, self._train, self._validation)

    @property
    def step(self) -> int:
        """Return the number of steps taken."""
        return self._loop.training.position.step

    def train(self) -> int:
        """Call `fit`, commit a final checkpoint, and return the exit code."""
        try:
            with keras.device(str(self._rank.device)):
                self._fit()
            self._loop.training.finish()
        except Leave as leave:
            return leave.code
        return FINISHED

    def _fit(self) -> None:
        rank, model, loop = self._rank, self._model, self._loop
        functions, training = rank.functions, loop.training
        made = functions.result("callbacks") if functions.has("callbacks") else []
        begins = training.position.epoch
        epochs = begins if loop.over else loop.epochs(rank.config.epochs)
        verbose = 2 if rank.ranks.rank == 0 else 0
        callbacks = JobCallbacks(
            loop,
            callbacks_of(made, rank.ranks.rank, resumes=training.resumed_from is not None),
            add_progbar=verbose != 0,
            model=model,
            verbose=verbose,
            epochs=epochs,
            steps=self._train.count,
        )
        model.make_train_function()
        model.train_function = _skipping(model.train_function)
        model.fit(
            self._train,
            validation_data=self._validation,
            initial_epoch=begins,
            epochs=epochs,
            callbacks=callbacks,
            verbose=verbose,
        )

    def close(self) -> None:
        """Wait for the checkpoint being written, and stop loader processes."""
        self._loop.training.close()
        self._train.close()
        if self._validation is not None:
            self._validation.close()


def _skipping(step: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Return a training step that skips batches trained by an earlier attempt."""
    return lambda data: {} if data[0] is SKIPPED else step(data)


def _check_backend() -> None:
    found = keras.backend.backend()
    if found != "torch":
        raise InvalidDefinition(
            f"Keras runs on {found}, and a job trains Keras on torch: take out what sets KERAS_BACKEND in this process"
        )


def _compiled(model: Any, world: int) -> Any:
    """Return the model; raise InvalidDefinition unless it is a compiled Keras model that can train on these slots."""
    if not isinstance(model, keras.Model):
        raise InvalidDefinition(f"model() returned a {type(model).__name__}: return the compiled keras.Model")
    if not model.compiled:
        raise InvalidDefinition("model() returned a model that is not compiled: call model.compile(...) before")
    if world > 1:
        for each in keras.src.tree.flatten(model.loss):
            reduction = getattr(each, "reduction", "sum_over_batch_size")
            if reduction not in ("sum_over_batch_size", "mean"):
                raise InvalidDefinition(
                    f"the loss {type(each).__name__} has reduction={reduction!r}, and a mean of such losses over "
                    'slots is not that of the whole batch: write reduction="sum_over_batch_size", or take --slots 1'
                )
    return model
