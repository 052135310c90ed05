"""The training loop, from top to bottom: steps, reports, checkpoints, validation, release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.model.reports import Report
from kernel_backend.runner import seeds
from kernel_backend.runner.checkpointing import Checkpointer
from kernel_backend.runner.data import Batch, Batches
from kernel_backend.runner.functions import BatchRule, loss_and_logged
from kernel_backend.runner.link import Instructions, Spool
from kernel_backend.runner.pace import Pace
from kernel_backend.runner.ranks import Ranks
from kernel_backend.runner.reducer import Flags, OwnGradients, SummedGradients, Word
from kernel_backend.runner.validation import Sums, add_metrics, evaluating

FINISHED, RELEASED = 0, 85


@dataclass
class Training:
    """All that the loop needs. `step` counts the steps taken; it is the whole position."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    gradients: OwnGradients | SummedGradients
    loss: Callable[..., Any]
    metrics: Callable[..., Any] | None
    rule: BatchRule
    train: Batches
    validation: Batches | None
    device: torch.device
    ranks: Ranks
    checkpoints: Checkpointer
    pace: Pace
    spool: Spool
    instructions: Instructions
    seed: int
    epochs: int
    step: int = 0

    @property
    def total_steps(self) -> int:
        """Steps of the whole training."""
        return self.epochs * self.train.per_epoch

    @property
    def epoch(self) -> float:
        """Epochs taken, in fractions."""
        return self.step / self.train.per_epoch


def train(run: Training) -> int:
    """Train to the end, or until released; the exit code says which."""
    if run.step and run.step % run.train.per_epoch == 0:
        validate(run)  # the checkpoint of an epoch's end is taken before its validation
    while run.step < run.total_steps:
        epoch, first = divmod(run.step, run.train.per_epoch)
        for batch in run.train.shuffled(epoch, first):
            word, logged = take_step(run, batch)
            run.step += 1
            last = run.step == run.total_steps
            if word.flags.report:
                report(run, word, logged, batch)
            if word.flags.checkpoint or word.flags.release or last:
                run.checkpoints.save(run.step, run.epoch, last=word.flags.release or last)
                run.pace.saved()
            if word.flags.release and not last:
                return RELEASED
        validate(run)
    run.ranks.barrier()
    return FINISHED


def take_step(run: Training, batch: Batch) -> tuple[Word, Mapping[str, Any]]:
    """One step of the global batch, of which this rank has `batch`: what all ranks know of it, and values to log."""
    seeds.reseed(seeds.mix(run.seed, "step", run.step, run.ranks.rank))
    loss: Tensor | None = None
    logged: Mapping[str, Any] = {}
    if batch.samples:
        loss, logged = loss_and_logged(run.loss(**forward(run, batch)))
    word = run.gradients.backward(loss, batch.samples, wishes(run, bool(logged)))
    run.optimizer.step()
    return word, logged


def forward(run: Training, batch: Batch) -> dict[str, Any]:
    """Send a batch through the model: the loop values that `loss` and `metrics` may ask for."""
    data = to_device(batch.data, run.device)
    inputs = run.rule.split(data)
    return {
        "output": run.model(*inputs.positional, **inputs.named),
        "target": inputs.target,
        "input": inputs.value,
        "batch": data,
        "epoch": run.step // run.train.per_epoch,
    }


def wishes(run: Training, logged: bool) -> Flags:
    """What this rank asks of all for the step that it takes; clocks are rank 0's alone."""
    decides = run.ranks.rank == 0
    return Flags(
        release=run.instructions.release,
        checkpoint=decides and run.pace.checkpoint(run.step + 1),
        report=decides and run.pace.report(run.step + 1),
        logged=logged,
    )


def report(run: Training, word: Word, logged: Mapping[str, Any], batch: Batch) -> None:
    """Say the loss of the global batch, and the values that the loss function gave to log."""
    metrics: dict[str, float] = {}
    if word.flags.logged:
        sums = Sums()
        for name, value in logged.items():
            sums.add(name, value, batch.samples)
        metrics = sums.means(run.ranks)
    metrics["loss"] = float(word.loss)
    run.spool.say(Report(kind="training", step=run.step, epoch=run.epoch, metrics=metrics))


def validate(run: Training) -> None:
    """Say the mean loss and metrics over the validation data, the same at any number of ranks."""
    if run.validation is None:
        return
    seeds.reseed(seeds.mix(run.seed, "validation", run.step, run.ranks.rank))
    sums = Sums()
    with evaluating(run.model, run.ranks):
        for batch in run.validation.in_order():
            if batch.samples:
                values = forward(run, batch)
                loss, _ = loss_and_logged(run.loss(**values))
                sums.add("loss", loss, batch.samples)
                if run.metrics:
                    add_metrics(sums, run.metrics(**values), batch.samples)
    metrics = sums.means(run.ranks)
    run.spool.say(Report(kind="validation", step=run.step, epoch=run.epoch, metrics=metrics))


def to_device(data: Any, device: torch.device) -> Any:
    """The batch with its tensors on the device; on a CPU it is there already."""
    if device.type == "cpu":
        return data
    if isinstance(data, Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, Mapping):
        return {name: to_device(value, device) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [to_device(value, device) for value in data]
    return data
