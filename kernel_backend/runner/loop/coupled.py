"""Check once whether a user's loss is a mean over samples: only then the ranks' losses sum up to the batch's loss.

In training, the loss of the first batch as a whole is compared with the mean of its shares' losses. In a validation,
whose loss is a mean over batches, the loss of some samples at once is compared with the mean over pairs of them, also
if there is only one rank.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.reports import Note
from kernel_backend.runner.definition.functions import loss_and_logged
from kernel_backend.runner.determinism.python_state import as_it_was, goes_on
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.loop.forward import reseed
from kernel_backend.runner.loop.whole_loss import gathers
from kernel_backend.runner.metrics.join import host_copy, join, moved, rows, size_of
from kernel_backend.runner.metrics.whole_set import MetricPart
from kernel_backend.runner.ranks.gather import gather_objects

if TYPE_CHECKING:
    from kernel_backend.runner.loop.training import Training

LIMIT = 256_000_000  # bytes of outputs and targets; larger batches are not compared
_TOLERANCE, _OF_SIXTEEN_BITS = 1e-3, 3e-2
_SAMPLES = 16  # of the first batch of a validation, and of its last


def compares(run: Training) -> bool:
    """Return True if this step must compare the loss of its whole batch with those of the batch's shares.

    This is so in the first step, if the batch has several shares, and if rank 0 alone can call the loss function once
    more, without side effects.
    """
    several = run.logical.count * (run.config.accumulate or 1) > 1
    return _callable_apart(run) and run.step == 0 and several and not gathers(run)


def _callable_apart(run: Training) -> bool:
    """Return True if rank 0 can call the loss function once more, without the other ranks and without side effects."""
    keeps = run.streams is not None and bool(run.generators)  # rank 0 alone would advance these generators
    by_loss = all(each.function is None for each in run.objectives)
    return by_loss and not keeps and not run.strategy.sharded  # a loss may call the model, which needs all ranks


def warn_if_coupled(run: Training, parts: list[MetricPart], mean: float) -> None:
    """Warn the user if the loss of the whole batch is not the mean of its shares' losses; all ranks call it.

    `parts` has the loss function's arguments for each of this rank's shares, and `mean` is the mean of all shares'
    losses, weighted by samples. Weights, buffers, random states and Python state are restored afterwards; output of the
    loss function is suppressed.
    """
    small = run.ranks.all_gather_object(sum(size_of(part.values) for part in parts) <= LIMIT // run.ranks.size)
    if not all(small) or not math.isfinite(mean):
        return
    per_rank = [each for parts in gather_objects(parts, run.ranks, run.device) for each in parts]
    if run.ranks.rank != 0 or len(per_rank) < 2:
        return
    per_rank.sort(key=lambda part: part.logical)
    whole = _whole(run, per_rank)
    if whole is None or not math.isfinite(whole) or _close(run, whole, mean):
        return
    parted = (run.config.accumulate or 1) > 1
    text = (
        f"the loss of the first batch as a whole is {whole:.6g}, and the mean over its {len(per_rank)} shares "
        f"{mean:.6g}: it is no mean over samples (it compares samples with one another, perhaps), so the training "
        f"depends on how many slots{' and parts' if parted else ''} share a batch; {'without --accumulate, ' * parted}"
        "--gather-loss computes the loss over the whole batch"
    )
    run.spool.say(Note(level="warning", text=text))


class ValidationSamples:
    """Samples of a validation, used to check once that the validation's loss is a mean over samples.

    They are taken from the first and the last batch, as a single batch may have samples of one class only, so that
    class weights have no effect.
    """

    def __init__(self, run: Training) -> None:
        """Prepare to collect samples for the check whether the loss is a mean over samples.

        Only rank 0 collects them, and only in the training's first validation.
        """
        # `best` is part of checkpoints: a later attempt does not check again.
        self._collects = (
            not run.loss_compared and run.judgement.best is None and run.ranks.rank == 0 and _callable_apart(run)
        )
        self._run = run
        self._first: MetricPart | None = None
        self._last: MetricPart | None = None

    def take(self, part: MetricPart) -> None:
        """Keep copies of some samples of share `part`, a logical rank's part of a validation batch.

        The samples of the first share and those of the newest are kept, as the newest may be the last.
        """
        if not self._collects:
            return
        values = {name: part.values[name] for name in self._run.loss_asks}
        few = min(part.samples, _SAMPLES)
        if size_of(values) // part.samples * few > LIMIT:
            self._collects = False
            return
        taken = part._replace(samples=few, values=host_copy(rows(values, part.samples, slice(0, few))))
        self._first, self._last = self._first or taken, taken

    def warn_if_coupled(self) -> None:
        """Warn the user if the loss of all collected samples at once differs from the mean of the losses over pairs.

        Later validations of this attempt do not repeat the check.
        """
        run = self._run
        run.loss_compared = True
        if not self._collects or self._first is None or self._last is None:
            return
        both = [self._first] if self._first is self._last else [self._first, self._last]
        samples, found = sum(each.samples for each in both), self._at_once_and_in_pairs(both)
        if found is None or _close(run, *found):
            return
        whole, mean = found
        text = (
            f"the loss of {samples} samples of the validation at once is {whole:.6g}, and the mean over pairs of them "
            f"{mean:.6g}: it is no mean over samples (it has class weights or an ignored index, perhaps), so the "
            "validation's loss, a mean over batches, depends on their size and on the slots, and is not that of all "
            'samples at once; def metrics(output, target): return {"loss": loss(output, target)} gives that'
        )
        run.spool.say(Note(level="warning", text=text))

    def _at_once_and_in_pairs(self, both: list[MetricPart]) -> tuple[float, float] | None:
        """Return two losses of the collected samples: the loss of all at once, and the mean of the losses over pairs.

        `both` has the samples of the first and of the last share. Return None if the loss draws random numbers, cannot
        be called without side effects, raises an error or is not finite.
        """
        run = self._run
        with _without_trace(run) as possible:
            if not possible:
                return None
            try:
                values, count = _joined(run, both)
                whole = _loss(run, values, 0)
                if whole != _loss(run, values, 1):
                    return None
                starts = range(0, count - 1, 2)
                ends = [*starts[1:], count]  # the last has three samples where their number is odd
                pairs = [
                    (_loss(run, rows(values, count, slice(start, end)), 0), end - start)
                    for start, end in zip(starts, ends, strict=True)
                ]
            except Exception:  # the loss was written for whole batches: an error of other samples is not the user's
                return None
        # A pair whose samples are all ignored has no loss.
        finite = [(loss, samples) for loss, samples in pairs if math.isfinite(loss)]
        if not finite or not math.isfinite(whole):
            return None
        return whole, sum(loss * samples for loss, samples in finite) / sum(samples for _, samples in finite)


def _joined(run: Training, parts: list[MetricPart]) -> tuple[dict[str, Any], int]:
    """Return the loss function's arguments for the samples of all parts, and the number of these samples.

    If the samples differ in shape between parts, only the first part is used.
    """
    counts = [part.samples for part in parts]
    first = parts[0]
    parts = [part._replace(values=moved(part.values, run.device)) for part in parts]
    try:
        values = {name: join(counts, [part.values[name] for part in parts], name) for name in first.values}
    except InvalidDefinition:
        return parts[0].values, first.samples
    return values, sum(counts)


def _whole(run: Training, parts: list[MetricPart]) -> float | None:
    """Return the loss of the batch as a whole, joined from `parts`; None if it cannot be computed or is random."""
    counts = [part.samples for part in parts]
    with _without_trace(run) as possible:
        if not possible:
            return None
        try:
            first = moved(parts[0].values, run.device)
            if _loss(run, first, 0) != _loss(run, first, 1):
                return None
            values = {name: join(counts, [part.values[name] for part in parts], name) for name in first}
            return _loss(run, moved(values, run.device), 0)
        except Exception:  # the loss was written for shares: an error on the whole batch is not the user's
            return None


@contextmanager
def _without_trace(run: Training) -> Iterator[bool]:
    """Let the `with` block call the loss function without a trace: undo its side effects, and discard its output.

    Weights, buffers, random states, files and Python state are restored after the block. Yields False if the side
    effects could not be undone.
    """
    called = {"loss": run.loss}
    if goes_on(called):
        yield False
        return
    with (
        torch.no_grad(),
        as_it_was(called),
        RandomStates().aside(),
        run.logical.aside(),
        run.statistics.apart(),
        run.files.aside(),
        _as_before(run.logical.beside.values()),
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
    ):
        yield True


def _close(run: Training, whole: float, mean: float) -> bool:
    tolerance = _OF_SIXTEEN_BITS if run.config.amp else _TOLERANCE
    return math.isclose(whole, mean, rel_tol=tolerance, abs_tol=1e-6)


def _loss(run: Training, values: dict[str, Any], draw: int) -> float:
    reseed(run, "coupled", draw)
    with run.precision():
        return float(loss_and_logged(run.loss_function(**values))[0])


@contextmanager
def _as_before(modules: Any) -> Iterator[None]:
    """Restore the weights of `modules` (modules outside the model) after the `with` block.

    The loss function, which the block calls, may modify them.
    """
    # By .data: an undone write must not increment the version that checkpoints compare.
    weights: list[nn.Parameter] = [each for module in modules for each in module.parameters()]
    before = [(each, each._version, each.detach().clone()) for each in weights]
    try:
        yield
    finally:
        for each, version, value in before:
            if each._version != version:
                each.data.copy_(value)
