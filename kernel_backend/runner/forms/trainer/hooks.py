"""Override a Hugging Face Trainer's handling of processes, checkpoints and logs, but not its training."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer, TrainerCallback

from kernel_backend.runner.forms.trainer.data import Loader
from kernel_backend.runner.forms.trainer.loop import TrainerLoop
from kernel_backend.runner.timing.clock import CLOCK


class JobCallback(TrainerCallback):
    """Callback by which the TrainerLoop learns that the Trainer begins the training and each step."""

    def __init__(self, loop: TrainerLoop) -> None:
        self._loop = loop

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Restore the checkpoint. The user's own callbacks have been called before."""
        self._loop.begin()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Begin a step of the Trainer, an update of the weights, in the TrainerLoop."""
        self._loop.begin_step()

    def on_prediction_step(self, *_: Any, **__: Any) -> None:
        """Report that an evaluation makes progress, so that the launcher does not consider it a hang."""
        self._loop.training.tick_validation()


_Trainer: Any = Trainer  # its own methods are hardly typed


class JobTrainer(_Trainer):  # type: ignore[misc]
    """Mixin whose methods replace those of the user's Trainer in a job; `in_job` inserts it."""

    job: TrainerLoop

    def get_train_dataloader(self) -> Loader:
        """Return this rank's shares of the training batches."""
        return self.job.train_loader(super().get_train_dataloader())

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Loader:
        """Return this rank's shares of the batches of an evaluation."""
        return self.job.validation_loader(super().get_eval_dataloader(eval_dataset))

    def get_test_dataloader(self, test_dataset: Any) -> Loader:
        """Return this rank's shares of the batches for a prediction."""
        return self.job.validation_loader(super().get_test_dataloader(test_dataset))

    def is_world_process_zero(self) -> bool:
        """Return True on rank 0 only."""
        return self.job.first

    is_local_process_zero = is_world_process_zero

    def _init_training_state(self, *args: Any) -> tuple[int, int]:
        super()._init_training_state(*args)
        _, _, epochs, *_ = args
        return self.job.begins_at(epochs)

    def _run_epoch(self, **arguments: Any) -> None:
        if self.job.resumes_within():
            arguments["resume_from_checkpoint"] = "the checkpoint of this job"
        super()._run_epoch(**arguments)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        self.job.restore_again()

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> Any:
        """Return the batches of a step, and the number of items (such as tokens) in all ranks' batches.

        A step has `num_batches` batches, as gradients may be accumulated.
        """
        found, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if items is None or self.job.world == 1:
            return found, items
        own = self.job.own_of(found)
        mine = self._get_num_items_in_batch(own, device) if own else 0
        return found, torch.tensor(self.job.sum(float(mine)), device=device)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Train on a batch; its loss is weighted by the fraction of the global batch's samples that this rank has."""
        self.job.begin_batch()
        if num_items_in_batch is not None and self.job.world > 1:
            num_items_in_batch = _Items.of(num_items_in_batch, self.job)
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        loss = loss if self.job.scale == 1 else loss * self.job.scale
        self.job.add_loss(loss)
        return loss

    def evaluation_loop(self, *args: Any, **arguments: Any) -> Any:
        """Evaluate on all ranks, with the BatchNorm statistics of rank 0; return the Trainer's result."""
        with CLOCK.part("validation"), self.job.validation():
            return super().evaluation_loop(*args, **arguments)

    def _prepare_inputs(self, *args: Any, **arguments: Any) -> Any:
        with CLOCK.part("transfer") if self.args.device.type != "cpu" else nullcontext():
            return super()._prepare_inputs(*args, **arguments)

    def _maybe_log_save_evaluate(self, *args: Any, **arguments: Any) -> None:
        self.job.average_logged_loss()
        super()._maybe_log_save_evaluate(*args, **arguments)
        self.job.boundary()

    def _finalize_training(self, *args: Any, **arguments: Any) -> Any:
        self.job.end()
        self.job.average_loss()  # of the steps since the last log, which train() adds to the loss that it returns
        return super()._finalize_training(*args, **arguments)

    def log(self, logs: dict[str, float], *args: Any, **arguments: Any) -> None:
        """Log the values as the Trainer does, and report them to the service."""
        super().log(logs, *args, **arguments)
        self.job.log(logs)

    def _save_checkpoint(self, *_: Any, **__: Any) -> None:
        self.job.training.request_checkpoint()

    def save_model(self, *args: Any, **arguments: Any) -> None:
        """Save the model, on rank 0 only."""
        if self.job.first:
            super().save_model(*args, **arguments)


def in_job(trainer: Any, job: TrainerLoop) -> None:
    """Make the Trainer train in a job: its class gets JobTrainer as the first base, whose methods override it."""
    kind = type(trainer)
    trainer.__class__ = type(kind.__name__, (JobTrainer, kind), {"__module__": kind.__module__})
    trainer.job = job
    accelerator = trainer.accelerator
    backward = accelerator.backward

    def scaled(loss: Tensor, **arguments: Any) -> None:
        backward(loss if job.scale == 1 else loss * job.scale, **arguments)

    accelerator.backward = scaled
    # Loaders are not prepared by Accelerate, but shared out here.
    accelerator.prepare_data_loader = lambda loader, *_, **__: loader
    accelerator.gather_for_metrics = trainer.gather_function = job.gathered
    trainer.add_callback(JobCallback(job))


class _Items(Tensor):
    """Number of items (such as tokens) in all ranks' batches, as a tensor that notices when it divides a loss.

    Then losses are sums over items, not means over a rank's samples, and the ranks' losses are added up.
    """

    job: TrainerLoop

    @classmethod
    def of(cls, number: Any, job: TrainerLoop) -> _Items:
        """Return the number as a tensor that calls `job.counted` when a loss is divided by the tensor."""
        found = torch.as_tensor(number).as_subclass(cls)
        found.job = job
        return found

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [_plain(each) for each in args]
        return function(*plain, **{name: _plain(each) for name, each in (kwargs or {}).items()})


def _plain(value: Any) -> Any:
    if not isinstance(value, _Items):
        return value
    vars(value)["job"].counted()
    return value.as_subclass(Tensor)
