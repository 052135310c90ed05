"""Add Daylight's work to the steps and epochs of a Trainer: report, agree with other ranks, save, and end early."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import recursively_apply
from torch import Tensor
from transformers.trainer_pt_utils import nested_concat

from kernel_backend.runner.definition.unregistered_weights import refuse_unregistered
from kernel_backend.runner.external_loop.auxiliary_weights import hold_auxiliary
from kernel_backend.runner.external_loop.training import ExternalTraining
from kernel_backend.runner.forms.trainer.data import Loader
from kernel_backend.runner.forms.trainer.state import Attributes, OwnAttributes, Progress
from kernel_backend.runner.metrics.sums import share

_PADDING = -100  # of predictions and labels of different lengths, as in Trainer
_SPEEDS = ("_runtime", "_per_second", "_preparation_time")


class TrainerLoop:
    """Daylight's work between the steps of a Trainer's `train()` in this rank: reports, checkpoints, an early end."""

    def __init__(self, training: ExternalTraining, trainer: Any, register: Callable[[str, Any], object]) -> None:
        """Set up a Trainer's loop; its state is restored when the Trainer begins to train.

        `register` makes a value part of the checkpoints of `training`, under a name.
        """
        rank = training.rank
        self.training, self._register = training, register
        self.training.form_state = self._state
        self._rank, self._trainer = rank, trainer
        form = self.training.position.form
        self._taken = int(form.get("batch", 0))  # batches of this epoch so far
        self._stopped: list[int | None] | None = form.get("stopped")  # the length at which a callback stopped it
        self._resumes_within = self._taken > 0
        self._train: Loader | None = None
        self._validation: Loader | None = None
        self._evaluates = False
        self._held: tuple[Progress, Attributes, OwnAttributes] | None = None  # from `begin` on
        self._loss = 0.0  # sum over the batches of this step
        self._running = False  # from the first step to the end of the last epoch
        self.scale = 1.0  # weight of this rank's loss in the current batch, before gradients are averaged

    @property
    def _length(self) -> list[int | None]:
        return [self._rank.config.epochs, self._rank.config.steps]

    def _state(self) -> dict[str, Any]:
        return {"batch": self._taken, "stopped": self._stopped}

    @property
    def world(self) -> int:
        """Return the number of ranks of the job."""
        return self._rank.ranks.size

    @property
    def first(self) -> bool:
        """Return True on rank 0."""
        return self._rank.ranks.rank == 0

    # Data

    def train_loader(self, loader: Any) -> Loader:
        """Return the loader of this rank's shares of the training data, in place of the Trainer's `loader`."""
        args = self._trainer.args
        seed = args.data_seed if args.data_seed is not None else self._rank.config.seed
        self._train = Loader(self._rank, loader, training=True, seed=seed)
        self._train.taken = self._taken
        return self._train

    def validation_loader(self, loader: Any) -> Loader:
        """Return the loader of this rank's shares of an evaluation's data, in place of the Trainer's `loader`."""
        if self._validation is not None:
            self._validation.close()
        self._validation = Loader(self._rank, loader, training=False, seed=0)
        return self._validation

    def own_of(self, batches: list[Any]) -> list[Any]:
        """Return those of `batches`, the training batches read last, in which this rank has samples of its own."""
        assert self._train is not None
        return self._train.own_of(batches)

    def sum(self, number: float) -> float:
        """Return the sum of a number over all ranks; every rank must call it."""
        if self.world == 1:
            return number
        on = self._rank.device if self._rank.choice.name == "torch" else torch.device("cpu")
        word = torch.tensor([number], dtype=torch.float64, device=on)
        return float(self._rank.ranks.allreduce_sum(word, "trainer").item())

    def gathered(self, data: Any, *_: Any, **__: Any) -> Any:
        """Return values of the current batch, such as predictions, from all ranks, in the order of the samples.

        If `data` is a single number, return a tensor with one number for each rank that has samples in this batch.
        """
        loader = self._validation if self._evaluates else self._train
        assert loader is not None
        own = loader.own_rows
        if self.world == 1:
            return recursively_apply(lambda tensor: tensor[own] if tensor.dim() else tensor, data)
        mine = recursively_apply(lambda tensor: tensor[own] if tensor.dim() else tensor[None][own], data)
        device = self._trainer.args.device
        per_rank = self._rank.ranks.all_gather_object(recursively_apply(lambda tensor: tensor.cpu(), mine))
        found = per_rank[0]
        for each in per_rank[1:]:
            found = nested_concat(found, each, padding_index=_PADDING)  # type: ignore[no-untyped-call]
        return recursively_apply(lambda tensor: tensor.to(device), found)

    # Called by the Trainer's loop

    def begins_at(self, epochs: int) -> tuple[int, int]:
        """Return the epoch, and the batch in it, at which this attempt begins.

        `epochs` is the number of epochs to train; a training that has ended begins at (`epochs`, 0).
        """
        position = self.training.position
        over = position.over or self._stopped == self._length
        return (epochs, 0) if over else (position.epoch, self._taken)

    def begin(self) -> None:
        """Restore the checkpoint, once the Trainer has created model, optimizer and schedule."""
        trainer, training = self._trainer, self.training
        training.expected_steps = trainer.state.max_steps
        optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        refuse_unregistered(trainer.model, [optimizer])
        self._register("model", trainer.model)
        self._register("optimizer", optimizer)
        self._register("schedule", trainer.lr_scheduler)
        if trainer.accelerator.scaler is not None:
            self._register("scaler", trainer.accelerator.scaler)
        callbacks = enumerate(trainer.callback_handler.callbacks)
        self._held = (
            Progress(trainer),
            Attributes({f"{place} {type(each).__name__}": each for place, each in callbacks}),
            OwnAttributes(trainer),
        )
        for name, part in zip(("trainer", "callbacks", "attributes"), self._held, strict=True):
            self._register(name, part)
        self._running = True
        training.called = {"model": trainer.model, "trainer": trainer, "callbacks": trainer.callback_handler.callbacks}
        hold_auxiliary(training, self._register, self._held[-1].of_library())
        training.begin()

    def resumes_within(self) -> bool:
        """Return True if earlier attempts trained batches of this attempt's first epoch; later calls return False."""
        resumes, self._resumes_within = self._resumes_within, False
        return resumes

    def restore_again(self) -> None:
        """Restore attributes and random states a second time, if an epoch is resumed in the middle.

        The hooks at the start of the epoch have changed them since the first time.
        """
        assert self._held is not None
        _, callbacks, own = self._held
        callbacks.apply()
        own.apply()
        self.training.contents.restore_own()

    def begin_step(self) -> None:
        """Begin a step of the Trainer, an update of the weights, and set the step's loss to zero."""
        self.training.begin_step()
        self._loss = 0.0

    def begin_batch(self) -> None:
        """Begin the next batch of a step; its loss on this rank is weighted by the rank's share of the samples."""
        assert self._train is not None
        batch = self._train.begin_batch()
        self.training.take(batch)
        self.scale = self._train.own * self.world / batch.total
        self._taken += 1

    def counted(self) -> None:
        """Record that the Trainer divides losses by the number of items of all ranks, not of this rank's batch.

        The ranks' losses must then be summed, not averaged.
        """
        self.scale = float(self.world) if self.scale else 0.0

    def add_loss(self, loss: Tensor) -> None:
        """Add the loss of a batch to the loss of the current step."""
        self._loss += float(loss)

    @contextmanager
    def validation(self) -> Iterator[None]:
        """Treat the `with` block as a validation, for which all ranks get rank 0's BatchNorm statistics."""
        share(list(self._trainer.model.buffers()), self._rank.ranks)
        self._evaluates = True
        try:
            yield
        finally:
            self._evaluates = False

    def average_logged_loss(self) -> None:
        """Average the losses since the last log over the ranks, if the Trainer logs them at this step."""
        trainer = self._trainer
        if trainer.control.should_log and trainer.state.global_step > trainer._globalstep_last_logged:
            self.average_loss()

    def average_loss(self) -> None:
        """Average the losses since the last log over the ranks; all ranks call it."""
        trainer = self._trainer
        if self.world > 1:
            trainer._tr_loss.fill_(self.sum(float(trainer._tr_loss)) / self.world)

    def log(self, logs: Mapping[str, Any]) -> None:
        """Report what the Trainer logs: an evaluation as a validation, all else as values of the training.

        The loss is left out, as each step reports its own.
        """
        if not self._running:
            return
        found = {name: float(value) for name, value in logs.items() if isinstance(value, bool | int | float)}
        validates = any(name.startswith("eval_") for name in found)
        kept = {name: value for name, value in found.items() if name != "epoch" and not name.endswith(_SPEEDS)}
        if validates:
            if self.first:
                self.training.report("validation", kept)
        else:
            kept.pop("loss", None)
            self.training.report("training", kept)

    def boundary(self) -> None:
        """End a step and, after its last step, the epoch: report, save or end the training as the ranks agree."""
        training, position, control = self.training, self.training.position, self._trainer.control
        assert self._train is not None
        count = len(self._train)
        if training.in_step:
            position.fraction = self._taken / count
            training.report("training", {"loss": self._loss})
            leaves = control.should_epoch_stop or control.should_training_stop
            training.end_step(last=self._taken == count or leaves)
            control.should_training_stop = control.should_training_stop or position.over
            return
        stops = control.should_training_stop
        if stops and not position.over:
            self._stopped = self._length
        if self._taken < count and not control.should_epoch_stop:
            return
        self._taken = 0
        training.end_epoch(last=stops)
        control.should_training_stop = stops or position.over

    def end(self) -> None:
        """Stop reporting. Later checkpoints hold the state of callbacks and logs as it is now.

        After this call, the Trainer only logs a summary.
        """
        assert self._held is not None
        self._running = False
        for part in (*self._held, self.training.contents.kept):
            if part is not None:
                part.end()

    def close(self) -> None:
        """Stop loader processes."""
        for each in (self._train, self._validation):
            if each is not None:
                each.close()
