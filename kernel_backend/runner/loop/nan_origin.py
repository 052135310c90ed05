"""Locate the origin of a non-finite loss: a parameter, the batch, a layer, or the loss function itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernel_backend.runner.data import Batch
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.loop.finite import bad_parameter, bad_value, first_bad_layer
from kernel_backend.runner.loop.forward import parts, reseed, to_device

if TYPE_CHECKING:
    from kernel_backend.runner.loop.training import Training


def nan_origin(run: Training, shares: list[Batch]) -> str:
    """Describe why the loss of this step is not finite, before its update; called by all ranks, changes nothing."""
    with torch.no_grad(), RandomStates().aside(), run.logical.aside():
        found = bad_parameter(run.model) or next(filter(None, (_whence(run, *each) for each in parts(run, shares))), "")
    everyones = run.ranks.all_gather_object(found)
    return next(filter(None, everyones), "the model gives finite outputs, and the loss function does not")


def _whence(run: Training, rank: int, batch: Batch) -> str:
    inputs = run.rule.split(to_device(batch.data, run.device))
    if bad := bad_value("input", inputs.value) or bad_value("target", inputs.target):
        return bad
    run.logical.take(rank)
    if run.streams is None:
        reseed(run, "step", run.step, rank)
    with first_bad_layer(run.model) as layers, run.precision():
        run.model(*inputs.positional, **inputs.named)
    return "".join(layers)
