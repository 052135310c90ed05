"""Add Daylight's work to the steps and epochs of Keras' `fit`: report, agree with other ranks, save, and end early."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import keras
import torch

from kernel_backend.runner.context import RankContext
from kernel_backend.runner.external_loop.auxiliary_weights import hold_auxiliary
from kernel_backend.runner.external_loop.training import ExternalTraining
from kernel_backend.runner.forms.keras.data import Shares
from kernel_backend.runner.forms.keras.gradients import StepGradients
from kernel_backend.runner.forms.keras.metrics import MetricSums
from kernel_backend.runner.forms.keras.state import (
    CallbackState,
    KerasOptimizer,
    Variables,
    auxiliary_variables,
    differ,
    model_variables,
    optimizers,
    other_variables,
    unbuilt_auxiliaries,
)
from kernel_backend.runner.forms.keras.user_callbacks import watches_batches
from kernel_backend.runner.forms.keras.values import on_torch
from kernel_backend.runner.metrics.sums import share
from kernel_backend.runner.timing.clock import CLOCK
from kernel_backend.snapshots.keras_models import described as described_model


class KerasLoop:
    """Daylight's work between the steps of a call of Keras' `fit` in this rank: reports, checkpoints, an early end."""

    def __init__(
        self, rank: RankContext, model: Any, train: Shares, validation: Shares | None, described: bool
    ) -> None:
        """Choose the checkpoint to resume from. It is restored when the first epoch of this attempt begins.

        With `described`, checkpoints hold the model's configuration, as no function of the cell makes the model.
        """
        self.training = ExternalTraining(rank, "keras")
        self.training.form_state = self._state
        self._rank, self._model = rank, model
        self._train, self._validation = train, validation
        self._description = description(model) if described else None
        self._device = torch.device(rank.device if rank.choice.name == "torch" else "cpu")  # of what ranks exchange
        self.gradients: StepGradients | None = None  # on torch, ExternalTraining averages them
        if rank.ranks.size > 1 and not on_torch():
            self.gradients = StepGradients(rank.ranks, self._fraction, self._device)
        self._sums: MetricSums | None = None  # from the first epoch on
        self._stopped: list[int | None] | None = self._saved.get("stopped")  # the length at which a callback stopped it
        self._before: list[list[torch.Tensor]] = []  # states to restore after a batch without samples of this rank
        self._skipped = 0  # batches of this epoch that an earlier attempt trained
        self.skipping = False  # an earlier attempt trained the current batch
        self._last = False  # the current step is the last of its epoch, or of the training
        self._logs: dict[str, float] = {}

    @property
    def _saved(self) -> dict[str, Any]:
        return self.training.position.form

    @property
    def over(self) -> bool:
        """Return True if the training to resume has already ended, so that no step is left."""
        position, config = self.training.position, self._rank.config
        return position.over or self._stopped == self._length or position.epoch >= self.epochs(config.epochs)

    def epochs(self, wanted: int) -> int:
        """Return the number of epochs to train: `wanted`; with `--steps N`, the fewest epochs that contain N steps."""
        steps = self._rank.config.steps
        return wanted if steps is None else -(-steps // self._train.count)

    @property
    def _length(self) -> list[int | None]:
        return [self._rank.config.epochs, self._rank.config.steps]

    def _state(self) -> dict[str, Any]:
        form = {"batch": self._train.taken, "stopped": self._stopped, "build": build_config(self._model)}
        return form if self._description is None else {**form, "model": self._description}

    def refresh(self) -> None:
        """Copy the weights from Keras again, if it does not run on torch, so that a check of them sees the newest.

        It is called at the end of the training, before the check that all weights are finite.
        """
        if self._sums is not None:
            self._weights.refresh()

    # Called by JobCallbacks

    def skips(self, batch: int) -> bool:
        """Return True if an earlier attempt has trained batch number `batch` of this epoch."""
        self.skipping = batch < self._skipped
        return self.skipping

    def begin_training(self, callbacks: Sequence[Any]) -> None:
        """Restore the checkpoint now if its training had already ended; else the first `begin_epoch` restores it."""
        if self.over:
            self._begin(callbacks)

    @property
    def resumes_within_epoch(self) -> bool:
        """Return True at the start of an epoch of which earlier attempts have trained some steps."""
        return self._sums is None and self._saved.get("batch", 0) > 0

    def begin_epoch(self, callbacks: Sequence[Any]) -> None:
        """Begin an epoch; in the first epoch of this attempt, restore the checkpoint first."""
        if self._sums is None:
            self._begin(callbacks)
        self._skipped = self._train.taken
        self._last = False

    def _begin(self, callbacks: Sequence[Any]) -> None:
        rank, training, model = self._rank, self.training, self._model
        config = rank.config
        training.expected_steps = config.steps or config.epochs * self._train.count
        self._sums = MetricSums(model, rank.ranks, self._device)
        self._weights = model_variables(model)
        others = other_variables(model)
        restored = self._register("model", self._weights)
        self._register("state", others)
        for name, each in optimizers(model).items():
            training.register(name, KerasOptimizer(each))
            each.apply = CLOCK.part("optimizer")(each.apply)  # the clock's hooks time only torch optimizers
            if self.gradients is not None:
                each.apply = self.gradients.applied(name, each)
        training.register("callbacks", CallbackState(callbacks))
        if self._stopped is not None and self._stopped != self._length:
            for each in callbacks:
                if isinstance(each, keras.callbacks.EarlyStopping):
                    each.wait = 0  # restart the patience, since the training was extended
        if not restored and rank.ranks.rank:
            differ(model, config.seed, rank.ranks.rank)
        self._watches = rank.ranks.size > 1 and watches_batches(callbacks)
        # Only now, as Keras first reads a batch to build the model.
        self._train.epoch, self._train.taken = training.position.epoch, int(self._saved.get("batch", 0))
        if not self._train.taken and not self.over:
            model.reset_metrics()  # as at the start of each epoch
        training.called = {"model": model, "loss": model.loss, "callbacks": list(callbacks)}
        if beside := auxiliary_variables(model, training.called):
            self._register("variables", Variables(beside))
        if unbuilt := unbuilt_auxiliaries(training.called):
            rank.limit_guarantee(
                f"not reproducible: {', '.join(unbuilt)}: used beside the model, and without variables before the "
                "first step, so that no restart can put them back: call build(...) before the training"
            )
        hold_auxiliary(training, training.register, optimizers(model).values())
        training.begin()

    def _register(self, name: str, variables: Variables) -> bool:
        """Register variables for the checkpoints; return True if they were restored from one."""
        restored = self.training.register(name, variables, average=on_torch())
        variables.store()
        return restored

    def _fraction(self) -> float:
        """Return the part of the current global batch that this rank computes."""
        own, total = self._train.samples
        return own / total

    def begin_step(self) -> None:
        """Begin a step of Keras' `fit`; if this rank has no samples in its batch, copy the metrics' states aside."""
        self._train.read()
        self.training.begin_step(self._train.samples)
        self._keep_aside(self._train)

    def trained(self, logs: Any) -> Any:
        """Report a step; return its logs for the user's callbacks. `logs` are those of Keras, over this rank's samples.

        The metrics in the returned logs cover the samples of all ranks if a callback reads the logs of each batch, and
        at the end of an epoch; otherwise this rank's alone.
        """
        assert self._sums is not None
        self._put_back()
        train, position = self._train, self.training.position
        if train.batch is not None:
            self.training.take(train.batch)
        train.taken += 1
        self._last = train.taken == train.count
        position.fraction = train.taken / train.count
        if self._last:
            self._sums.add_up()
            logs = self._model.get_metrics_result()
        elif self._watches:
            own = self._sums.take()
            self._sums.add_up()
            logs = self._model.get_metrics_result()
            self._sums.put(own)
        self._logs = numbers(logs)
        # If all ranks know the value over all samples, only rank 0's counts.
        weight = float(self._rank.ranks.rank == 0) if self._last or self._watches else None
        self.training.report("training", self._logs, weight=weight)
        return logs

    def end_step(self) -> None:
        """End a step, except the last of an epoch and one at which a callback stops: `end_epoch` ends these."""
        assert self._sums is not None
        model = self._model
        if self._last:
            return
        if model.stop_training:  # set by a callback, equally on all ranks
            self._sums.add_up()
            return
        self.training.end_step()
        if self.training.position.over:
            model.stop_training = True
            self._sums.add_up()

    def begin_validation_batch(self) -> None:
        """Begin a batch of a validation; if this rank has no samples in it, copy the metrics' states aside."""
        assert self._validation is not None
        self._validation.read()
        self._keep_aside(self._validation)

    def validated(self, batch: int, logs: Any) -> Any:
        """Return the logs of validation batch `batch` for the callbacks.

        After the last batch, they have the metrics over the samples of all ranks; until then, `logs`, of this rank's
        samples.
        """
        assert self._validation is not None
        assert self._sums is not None
        self.training.tick_validation()
        self._put_back()
        if batch + 1 < self._validation.count:
            return logs
        self._sums.add_up()
        return self._model.get_metrics_result()

    def begin_validation(self) -> None:
        """Begin a validation: copy rank 0's BatchNorm statistics to all ranks."""
        self.training.tick_validation()
        share(list(self._weights.buffers()), self._rank.ranks)
        self._weights.store_buffers()

    def end_epoch(self, logs: Any) -> None:
        """Report the validation of an epoch, if it had one, and end its last step and the epoch.

        An epoch that a callback has stopped in the middle stays open: a longer training would continue there.
        """
        training, train = self.training, self._train
        found = {name: each for name, each in numbers(logs).items() if name.startswith("val_")}
        if found and self._rank.ranks.rank == 0:
            training.report("validation", found)
        stops = self._model.stop_training
        if training.in_step:
            training.abandon_step()
        if stops and not training.position.over:
            self._stopped = self._length
        if train.taken < train.count:  # within an epoch, to continue there if the training is extended
            return
        train.epoch, train.taken = train.epoch + 1, 0
        over = training.position.over or stops or train.epoch == self.epochs(self._rank.config.epochs)
        training.end_epoch(last=over)
        if training.position.over:
            self._model.stop_training = True

    # Batches without samples of this rank

    def _keep_aside(self, shares: Shares) -> None:
        """Copy metrics' states and buffers if this rank has no samples in the next batch of `shares`.

        They are restored after the batch, so that it has no effect on them.
        """
        self._before = []
        if not shares.samples[0]:
            assert self._sums is not None
            buffers = [each.detach().clone() for each in self._weights.buffers()]
            self._before = [self._sums.take(), buffers]

    def _put_back(self) -> None:
        assert self._sums is not None
        if self._before:
            states, buffers = self._before
            self._sums.put(states)
            with torch.no_grad():
                for each, before in zip(self._weights.buffers(), buffers, strict=True):
                    each.copy_(before)
            self._weights.store_buffers()


def description(model: Any) -> str | None:
    """Return the configuration of a model as JSON; None if a class of the user does not give its own."""
    try:
        return described_model(model)
    except Exception:  # any error of a user's get_config
        return None


def build_config(model: Any) -> dict[str, Any]:
    """Return the input shapes for which Keras has built a model, as JSON data."""
    found: dict[str, Any] = json.loads(json.dumps(model.get_build_config() or {}, default=str))
    return found


def numbers(logs: Any) -> dict[str, float]:
    """Return those entries of Keras' logs that are single numbers, as floats."""
    found = keras.src.utils.python_utils.pythonify_logs(logs or {})
    return {name: float(each) for name, each in found.items() if isinstance(each, bool | int | float)}
