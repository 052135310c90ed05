"""Locate the origin of a non-finite loss: a parameter, the batch, a layer, or the loss function itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from kernel_backend.runner.data import Batch
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.loop.finite import bad_parameter, bad_value, first_bad_layer
from kernel_backend.runner.loop.forward import parts, reseed, to_device
from kernel_backend.runner.loop.objective import Objective

if TYPE_CHECKING:
    from kernel_backend.runner.loop.training import Training


def nan_origin(run: Training, objective: Objective, shares: list[Batch]) -> str:
    """Describe why a loss of this step is not finite, before its update; called by all ranks, changes nothing."""
    find = _first_bad_value if objective.function is None else _bad_batch
    with torch.no_grad(), RandomStates().aside(), run.logical.aside(), run.statistics.apart():
        found = bad_parameter(run.model) or next(filter(None, (find(run, *each) for each in parts(run, shares))), "")
    per_rank = run.ranks.all_gather_object(found)
    otherwise = "the model gives finite outputs, and the loss function does not"
    if objective.function is not None:
        otherwise = f"the batch and the weights are finite, and what {objective.role}() computes of them is not"
    return next(filter(None, per_rank), otherwise)


def _bad_batch(run: Training, rank: int, batch: Batch) -> str:
    """Describe a batch that is not finite; a training step is not called again, since it may have side effects."""
    data = batch.data
    named = data.items() if isinstance(data, Mapping) else [("data", data)]
    return next(filter(None, (bad_value(str(name), value) for name, value in named)), "")


def _first_bad_value(run: Training, rank: int, batch: Batch) -> str:
    inputs = run.rule.split(to_device(batch.data, run.device))
    if bad := bad_value("input", inputs.value) or bad_value("target", inputs.target):
        return bad
    run.logical.take(rank)
    if run.streams is None:
        reseed(run, "step", run.step, rank)
    with first_bad_layer(run.model) as layers, run.precision():
        run.model(*inputs.positional, **inputs.named)
    return "".join(layers)
