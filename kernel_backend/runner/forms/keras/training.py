"""Train the Keras model of a cell in this rank: create the model and its data, and call `fit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import keras

from kernel_backend.definition.contract import KerasBackend
from kernel_backend.definition.keras.calls import FIT
from kernel_backend.definition.keras.cell import unsaved_draws
from kernel_backend.definition.keras.fit import KerasFit, keras_fit
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.launch.exit_codes import FINISHED
from kernel_backend.model.snapshot import DEFINITION
from kernel_backend.model.syntax import module_tree
from kernel_backend.runner.cell_values import save_trained
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.external_loop.leave import Leave
from kernel_backend.runner.forms.keras import tensorflow
from kernel_backend.runner.forms.keras.callbacks import JobCallbacks
from kernel_backend.runner.forms.keras.data import SKIPPED, Shares, data_of
from kernel_backend.runner.forms.keras.loop import KerasLoop
from kernel_backend.runner.forms.keras.parts import parts_of
from kernel_backend.runner.forms.keras.user_callbacks import callbacks_of
from kernel_backend.runner.forms.keras.values import on_torch


class KerasTraining:
    """Training of a Keras model in this rank, by one call of `fit`."""

    def __init__(self, rank: RankContext) -> None:
        """Create the model and its data; raise InvalidDefinition if one of them is not valid."""
        self._rank = rank
        backend = rank.loaded.definition.keras_backend or "torch"
        _check_backend(backend)
        if backend == "tensorflow":
            tensorflow.make_deterministic(rank.config.seed, operations=rank.config.reproducible != "off")
        with self._device():
            given = parts_of(rank)
            self._train = Shares(rank, data_of(given.train_data, "train_data", given.shuffle), training=True)
            self._validation: Shares | None = None
            if given.validation_data is not None:
                self._validation = Shares(rank, data_of(given.validation_data, "validation_data"), training=False)
            self._model = _compiled(given.model, rank.ranks.size)
        self._callbacks: Sequence[Any] = given.callbacks
        self._loop = KerasLoop(
            rank, self._model, self._train, self._validation, described=FIT in vars(rank.loaded.module)
        )
        if not on_torch():
            self._limit_guarantee()

    @property
    def step(self) -> int:
        """Return the number of steps taken."""
        return self._loop.training.position.step

    def train(self) -> int:
        """Call `fit`, commit a final checkpoint, and return the exit code."""
        try:
            with self._device():
                history = self._fit()
            self._loop.refresh()
            self._save_values(history)
            self._loop.training.finish()
        except Leave as leave:
            return leave.code
        return FINISHED

    def _fit(self) -> Any:
        rank, model, loop = self._rank, self._model, self._loop
        training = loop.training
        begins = training.position.epoch
        epochs = begins if loop.over else loop.epochs(rank.config.epochs)
        verbose = 2 if rank.ranks.rank == 0 else 0
        callbacks = JobCallbacks(
            loop,
            callbacks_of(self._callbacks, rank.ranks.rank, resumes=training.resumed_from is not None),
            add_progbar=verbose != 0,
            model=model,
            verbose=verbose,
            epochs=epochs,
            steps=self._train.count,
        )
        self._wrap_steps()
        return model.fit(
            self._train,
            validation_data=self._validation,
            initial_epoch=begins,
            epochs=epochs,
            callbacks=callbacks,
            verbose=verbose,
        )

    def _save_values(self, history: Any) -> None:
        """Store the model, the history and the callbacks for the notebook, if the cell itself has called `fit`."""
        module = self._rank.loaded.module
        if FIT in vars(module):
            target = _call_of(self._rank).target
            if target:
                setattr(module, target, history)
            save_trained(self._rank, (self._model, history, *self._callbacks))

    def _wrap_steps(self) -> None:
        """Wrap Keras' training step: it skips batches that an earlier attempt has trained.

        On TensorFlow with several ranks, errors of the exchange of gradients are raised unchanged.
        """
        model, loop = self._model, self._loop
        if on_torch():
            model.make_train_function()
            model.train_function = _skipping(model.train_function)
            return
        if loop.gradients is not None:
            self._compile_without_xla()
        tensorflow.draw_apart(self._rank.config.seed, self._rank.ranks.rank)
        model.make_train_function()
        # On TensorFlow, Keras creates the variables of optimizer and metrics in the first step, too late for a restore.
        model._symbolic_build(data_batch=self._train.feed.first)
        step = model.train_function if loop.gradients is None else loop.gradients.guarded(model.train_function)
        model.train_function = lambda iterator: {} if loop.skipping else step(iterator)

    def _compile_without_xla(self) -> None:
        if self._model.jit_compile:
            self._rank.note(
                "jit_compile is off: XLA compiles no step in which slots exchange gradients, so that the step is a "
                "graph of TensorFlow without XLA"
            )
            self._model.jit_compile = False

    def _limit_guarantee(self) -> None:
        """Report "not reproducible" if the code draws random numbers that no restart can repeat.

        These are draws by a generator of TensorFlow, whose state no checkpoint holds.
        """
        call = unsaved_draws(Path(self._rank.job.code, DEFINITION).read_text(encoding="utf-8"))
        if call:
            self._loop.training.guarantee = (
                f"not reproducible: {call}() draws from a state that no checkpoint holds: take keras.random with a "
                "SeedGenerator"
            )

    def _device(self) -> AbstractContextManager[Any]:
        return keras.device(str(self._rank.device)) if on_torch() else nullcontext()

    def close(self) -> None:
        """Wait for a checkpoint that is being written, and stop loader processes."""
        self._loop.training.close()
        self._train.close()
        if self._validation is not None:
            self._validation.close()


def _call_of(rank: RankContext) -> KerasFit:
    """Return the call of `fit` in the source of a cell that trains by it."""
    source = Path(rank.job.code, DEFINITION).read_text(encoding="utf-8")
    snapshot = rank.loaded.snapshot
    found = keras_fit(module_tree(source), snapshot.roles_from if snapshot is not None else 1)
    assert found is not None
    return found


def _skipping(step: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Return a Keras training step that does nothing for batches which an earlier attempt has trained."""
    return lambda data: {} if data[0] is SKIPPED else step(data)


def _check_backend(wanted: KerasBackend) -> None:
    found = keras.backend.backend()
    if found != wanted:
        raise InvalidDefinition(
            f"Keras runs on {found}, and the cell asks for {wanted}: take out what sets KERAS_BACKEND in this process"
        )


def _compiled(model: Any, world: int) -> Any:
    """Return the model; raise InvalidDefinition unless it is a compiled Keras model that can train on `world` ranks."""
    if not isinstance(model, keras.Model):
        raise InvalidDefinition(f"the model is a {type(model).__name__}: make it a compiled keras.Model")
    if not on_torch() and model.steps_per_execution > 1:
        raise InvalidDefinition(
            f"steps_per_execution={model.steps_per_execution} of model.compile takes several steps at once, and a job "
            "reports and saves after each: leave it out"
        )
    if not model.compiled:
        raise InvalidDefinition("the model is not compiled: call model.compile(...) before")
    if world > 1:
        for each in keras.src.tree.flatten(model.loss):
            reduction = getattr(each, "reduction", "sum_over_batch_size")
            if reduction not in ("sum_over_batch_size", "mean"):
                raise InvalidDefinition(
                    f"the loss {type(each).__name__} has reduction={reduction!r}, and a mean of such losses over "
                    'slots is not that of the whole batch: write reduction="sum_over_batch_size", or take --slots 1'
                )
    return model
