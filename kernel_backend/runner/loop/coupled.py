"""Check once whether a loss is a mean over samples, by comparing the first batch as a whole with its shares."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from kernel_backend.model.reports import Note
from kernel_backend.runner.definition.functions import loss_and_logged
from kernel_backend.runner.determinism.python_state import as_it_was, goes_on
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.loop.forward import reseed
from kernel_backend.runner.loop.whole_loss import gathers
from kernel_backend.runner.metrics.join import join, moved, size_of
from kernel_backend.runner.metrics.whole_set import MetricPart
from kernel_backend.runner.ranks.gather import gather_objects

if TYPE_CHECKING:
    from kernel_backend.runner.loop.training import Training

LIMIT = 256_000_000  # bytes of outputs and targets; larger batches are not compared
_TOLERANCE, _OF_SIXTEEN_BITS = 1e-3, 3e-2


def compares(run: Training) -> bool:
    """Return True if the losses of this step must be compared: in the first step, if it has several shares.

    Return False if `--rng stream` is set and parts of the training hold generators, as only rank 0 would advance them.
    """
    keeps = run.streams is not None and bool(run.generators)
    by_loss = all(each.function is None for each in run.objectives)
    return (
        by_loss
        and run.step == 0
        and run.logical.count * (run.config.accumulate or 1) > 1
        and not gathers(run)
        and not run.strategy.sharded  # a loss may call the model, which needs all ranks
        and not keeps
    )


def warn_if_coupled(run: Training, parts: list[MetricPart], mean: float) -> None:
    """Warn if the loss of the whole batch is not the mean of its shares' losses; called by all ranks.

    `parts` are the loss function's arguments for this rank's shares, and `mean` is the weighted mean of its results.
    Weights, buffers, random states and Python state are restored afterwards; output of the loss function is suppressed.
    """
    small = run.ranks.all_gather_object(sum(size_of(part.values) for part in parts) <= LIMIT // run.ranks.size)
    if not all(small) or not math.isfinite(mean):
        return
    per_rank = [each for parts in gather_objects(parts, run.ranks, run.device) for each in parts]
    if run.ranks.rank != 0 or len(per_rank) < 2:
        return
    per_rank.sort(key=lambda part: part.logical)
    whole = _whole(run, per_rank)
    tolerance = _OF_SIXTEEN_BITS if run.config.amp else _TOLERANCE
    if whole is None or not math.isfinite(whole) or math.isclose(whole, mean, rel_tol=tolerance, abs_tol=1e-6):
        return
    parted = (run.config.accumulate or 1) > 1
    text = (
        f"the loss of the first batch as a whole is {whole:.6g}, and the mean over its {len(per_rank)} shares "
        f"{mean:.6g}: it is no mean over samples (it compares samples with one another, perhaps), so the training "
        f"depends on how many slots{' and parts' if parted else ''} share a batch; {'without --accumulate, ' * parted}"
        "--gather-loss computes the loss over the whole batch"
    )
    run.spool.say(Note(level="warning", text=text))


def _whole(run: Training, parts: list[MetricPart]) -> float | None:
    """Return the loss of a batch as a whole; None if it cannot be computed or draws random numbers."""
    counts = [part.samples for part in parts]
    called = {"loss": run.loss}
    if goes_on(called):
        return None
    with (
        torch.no_grad(),
        as_it_was(called),
        RandomStates().aside(),
        run.logical.aside(),
        run.statistics.apart(),
        run.files.aside(),
        _as_before(run.logical.beside.values()),
        redirect_stdout(io.StringIO()),  # the output of this extra call is discarded
        redirect_stderr(io.StringIO()),
    ):
        try:
            first = moved(parts[0].values, run.device)
            if _loss(run, first, 0) != _loss(run, first, 1):
                return None
            values = {name: join(counts, [part.values[name] for part in parts], name) for name in first}
            return _loss(run, moved(values, run.device), 0)
        except Exception:  # the loss was written for shares: an error on the whole batch is not the user's
            return None


def _loss(run: Training, values: dict[str, Any], draw: int) -> float:
    reseed(run, "coupled", draw)
    with run.precision():
        return float(loss_and_logged(run.loss_function(**values))[0])


@contextmanager
def _as_before(modules: Any) -> Iterator[None]:
    """Restore the weights of auxiliary modules after the block, in case the loss function modifies them."""
    # By .data: an undone write must not increment the version that checkpoints compare.
    weights: list[nn.Parameter] = [each for module in modules for each in module.parameters()]
    before = [(each, each._version, each.detach().clone()) for each in weights]
    try:
        yield
    finally:
        for each, version, value in before:
            if each._version != version:
                each.data.copy_(value)
