"""Locate the origin of a non-finite loss: a parameter, the batch, a layer, or the loss function itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """Return a description of why a loss of this step is not finite, before the weights are updated.

    All ranks call it; it leaves the state of the training unchanged.
    """
    with torch.no_grad(), RandomStates().aside(), run.logical.aside():
        found = bad_parameter(run.model) or _first(run, _bad_batch, shares)
        if not found and objective.function is None:  # a training step may have side effects: do not call it again
            found = _first(run, _bad_layer, shares)
    if objective.function is not None:
        return found or f"the batch and the weights are finite, and what {objective.role}() computes of them is not"
    return found or "the model gives finite outputs, and the loss function does not"


def _first(run: Training, find: Callable[[Training, int, Batch], str], shares: list[Batch]) -> str:
    """Call `find` for this rank's shares of the batch, and return the first description that any rank finds.

    `find` gets a logical rank and its share, and returns "" if all is finite. Each rank runs all of its shares, since a
    model's forward pass may contain collective operations. Return "" if no rank finds anything.
    """
    own = [find(run, rank, batch) for rank, batch in parts(run, shares)]
    per_rank = run.ranks.all_gather_object(next(filter(None, own), ""))
    return next(filter(None, per_rank), "")


def _bad_batch(run: Training, rank: int, batch: Batch) -> str:
    """Return a description of the first value in a share's data that is not finite; "" if all are finite."""
    if run.uses_output:
        inputs = run.rule.split(batch.data)
        return bad_value("input", inputs.value) or bad_value("target", inputs.target)
    named = batch.data.items() if isinstance(batch.data, Mapping) else [("data", batch.data)]
    return next(filter(None, (bad_value(str(name), value) for name, value in named)), "")


def _bad_layer(run: Training, rank: int, batch: Batch) -> str:
    """Run a share through the model; return text on the first layer whose output is not finite, "" if there is none."""
    inputs = run.rule.split(to_device(batch.data, run.device))
    run.logical.take(rank)
    if run.streams is None:
        reseed(run, "step", run.step, rank)
    with first_bad_layer(run.model) as layers, run.precision():
        run.model(*inputs.positional, **inputs.named)
    return "".join(layers)
