"""Compute the loss over a whole global batch (`--gather-loss`), for losses that compare samples.

Every rank gathers the outputs of all ranks and computes the same loss. An output's gradient is propagated through
the model on the rank that computed it. The gradient of a parameter that the loss function itself uses is counted once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.data import Batch
from kernel_backend.runner.definition.functions import loss_and_logged
from kernel_backend.runner.loop.forward import forward, parts, reseed
from kernel_backend.runner.metrics.join import floating, host_copy, join, mapped, moved
from kernel_backend.runner.metrics.sums import Sums
from kernel_backend.runner.metrics.whole_set import MetricPart
from kernel_backend.runner.ranks.gather import gather_objects

if TYPE_CHECKING:
    from kernel_backend.runner.loop.training import Training


class Whole(NamedTuple):
    """Global batch gathered from all ranks: the loss function's arguments, and the rows of each logical rank."""

    values: dict[str, Any]
    leaves: list[Tensor]  # the outputs, for which the loss computes gradients
    rows: dict[int, slice]  # by logical rank, of those with samples
    samples: int


def gathers(run: Training) -> bool:
    """Return True with `--gather-loss`: losses are computed over the whole global batch instead of per share."""
    return run.config.gather_loss and run.logical.count > 1


def share_losses(run: Training, shares: list[Batch], logged: Sums) -> list[Tensor | None]:
    """Return a substitute loss for each of this process's shares, None for an empty share; all ranks call it.

    The value of a substitute is the loss of the whole batch. Its gradient is what the whole batch's loss contributes
    through the outputs of this share alone. Values that the user logs are added to `logged`. Raises InvalidDefinition
    if outputs do not have a row for each sample.
    """
    outputs: dict[int, Any] = {}
    own: list[MetricPart] = []
    for rank, batch in parts(run, shares):
        run.logical.take(rank)
        if run.streams is None:
            reseed(run, "step", run.step, rank)
        with run.precision():
            given = forward(run, run.model, batch, batch.epoch, augments=True)
        outputs[rank] = given["output"]
        own.append(MetricPart(0, rank, batch.samples, {name: host_copy(given[name]) for name in asked(run)}))
    whole = _joined(run, [part for each in run.ranks.all_gather_object(own) for part in each])
    run.logical.take(run.logical.mine.start)
    if run.streams is None:
        reseed(run, "step", run.step, "loss")
    with run.precision():
        loss, values = loss_and_logged(run.loss_function(**{name: whole.values[name] for name in run.loss_asks}))
    first = min(whole.rows)
    for name, value in values.items() if first in outputs else ():
        logged.add(name, value, whole.samples, first)
    gradients = torch.autograd.grad(loss, whole.leaves, retain_graph=True, allow_unused=True)
    return [
        _share_loss(whole, gradients, loss, rank, outputs[rank]) if rank in outputs else None
        for rank in run.logical.mine
    ]


def validation_loss(run: Training, number: int, given: Iterable[MetricPart], sums: Sums) -> None:
    """Add the loss of validation batch `number`, computed over all its samples, to `sums` on rank 0.

    All ranks call it with the loss function's arguments for their shares (`given`).
    """
    own = [each._replace(values={name: host_copy(each.values[name]) for name in asked(run)}) for each in given]
    per_rank = [part for each in gather_objects(own, run.ranks, run.device) for part in each]
    if run.ranks.rank == 0 and per_rank:
        whole = _joined(run, per_rank)
        if run.streams is None:
            reseed(run, "validation", run.step, number, "loss")
        loss, _ = loss_and_logged(run.loss_function(**{name: whole.values[name] for name in run.loss_asks}))
        sums.add("loss", loss, whole.samples)


def asked(run: Training) -> frozenset[str]:
    """Return the names of the values to gather from all ranks: the arguments of `loss`, and `output`."""
    return run.loss_asks | {"output"}


def _joined(run: Training, per_rank: list[MetricPart]) -> Whole:
    per_rank.sort(key=lambda part: part.logical)
    counts = [part.samples for part in per_rank]
    values = {name: join(counts, [part.values[name] for part in per_rank], name) for name in sorted(asked(run))}
    values = moved(values, run.device)
    leaves: list[Tensor] = []

    def leaf(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        # In float32, as 16-bit gradients that no scaler has scaled would underflow.
        leaves.append(tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32)).requires_grad_())
        return leaves[-1]

    values["output"] = mapped(leaf, values["output"])
    rows, start = {}, 0
    for part in per_rank:
        rows[part.logical] = slice(start, start + part.samples)
        start += part.samples
    return Whole(values, leaves, rows, start)


def _share_loss(whole: Whole, gradients: tuple[Tensor | None, ...], loss: Tensor, rank: int, output: Any) -> Tensor:
    """Return a share's substitute loss: its value is that of the whole batch, its gradient only that by this share.

    `whole` is the batch and `loss` its loss. `gradients` are those of the loss by the outputs. `rank` is the share's
    logical rank, and `output` is what the model returned for the share.
    """
    outputs = floating(output)
    rows = whole.rows[rank]
    samples = rows.stop - rows.start
    if len(outputs) != len(whole.leaves) or any(each.dim() == 0 or len(each) != samples for each in outputs):
        raise InvalidDefinition(
            "--gather-loss joins what the model returns for the slots' shares, so each tensor of it must have a row "
            "for each sample: return such tensors, or leave --gather-loss out"
        )
    pairs = zip(outputs, gradients, strict=True)
    part: Tensor = torch.zeros_like(loss)
    for each, gradient in pairs:
        if gradient is not None:
            part = part + (each.to(gradient.dtype) * gradient[rows]).sum()
    if rank == min(whole.rows):  # counts parameters that the loss function itself uses once
        part = part + loss
    part = part * (whole.samples / samples)
    return part - part.detach() + loss.detach()
