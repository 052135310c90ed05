"""Compute the user's `metrics` over the whole validation set, at any number of ranks.

Values per sample are summed batch by batch. A single number, such as an F1 or an RMSE, cannot be averaged over batches:
then outputs and targets are collected, and `metrics` is called once with those of all samples. Objects with `update`,
`compute` and `reset`, as in torchmetrics, are updated batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.definition.metric_protocol import is_metric
from kernel_backend.runner.definition.step_files import StepFiles
from kernel_backend.runner.determinism.reachability import held_by
from kernel_backend.runner.metrics.agreement import Agreement, Kind
from kernel_backend.runner.metrics.join import host_copy, join, moved, size_of
from kernel_backend.runner.metrics.metric_objects import (
    States,
    computed,
    keep_to_itself,
    mapping,
    merge,
    named_metrics,
    states_of,
)
from kernel_backend.runner.metrics.sums import Sums, number
from kernel_backend.runner.ranks.backends import Ranks
from kernel_backend.runner.ranks.gather import gather_objects

LIMIT = 1_000_000_000  # bytes collected for one call, over all ranks
_OF_SAMPLES = frozenset({"output", "target", "input", "batch"})
_PAD = "pad all batches to one width (in collate_fn)"
_INSTEAD = (
    "return one value per sample, or objects of torchmetrics, which are updated batch by batch: "
    "def metrics(): return {...}"
)


class MetricPart(NamedTuple):
    """Outputs, targets and other arguments of `metrics` for one logical rank's share of a validation batch."""

    number: int  # index of the batch
    logical: int
    samples: int
    values: dict[str, Any]


class Evaluation(Protocol):
    """Accumulator of the values of the user's `metrics` during one validation."""

    def add(self, part: MetricPart) -> None:
        """Add one logical rank's share of a batch; raise InvalidDefinition, or any error of the user's function."""

    def end_batch(self, number: int) -> None:
        """End batch number `number`, which all ranks call: exchange errors and shapes with the other ranks.

        If one rank has an error, all ranks raise it, so that none waits for another.
        """

    def finish(self) -> dict[str, float]:
        """Return the metrics by name, over all samples of all ranks; all ranks call it."""


class Metrics:
    """Wrapper of the user's function `metrics`, which creates an Evaluation for each validation."""

    def __init__(
        self,
        function: Callable[..., Any],
        asked: frozenset[str],
        ranks: Ranks,
        device: torch.device,
        limit: int = LIMIT,
        files: StepFiles | None = None,
    ) -> None:
        """Set up the wrapper of the user's `metrics`, which takes those values of a batch that the set of names lists.

        `limit` is the most data, in bytes over all ranks, that may be collected. With `files`, files that the function
        writes are redirected on ranks other than 0.
        """
        self._function, self._asked, self._ranks = files.inside(function) if files else function, asked, ranks
        self.device, self._limit = device, limit
        self._objects = [each for _, each in held_by({"metrics": function}) if is_metric(each)]
        for each in self._objects:
            keep_to_itself(each)

    def begin(self, epoch: int) -> Evaluation:
        """Return an object that evaluates the user's `metrics` in a new validation, in epoch number `epoch`."""
        if self._asked & _OF_SAMPLES:
            return WholeSet(self, self._function, self._asked, self._ranks, self._limit)
        return OfObjects(self, self._function(epoch=epoch), self._ranks, self._limit)

    def reset(self) -> None:
        """Reset the metric objects to which the user's function refers, so that they hold no earlier samples."""
        for each in self._objects:
            each.reset()

    def gather(self, parts: list[MetricPart]) -> list[MetricPart]:
        """Return on rank 0 the shares of batches of all ranks, in the order of batches and logical ranks; [] elsewhere.

        All ranks call it.
        """
        per_rank = gather_objects(parts, self._ranks, self.device)
        return sorted((part for each in per_rank for part in each), key=lambda part: part[:2])

    def gather_states(self, states: dict[str, States]) -> list[dict[str, States]]:
        """Return on rank 0 the states of all ranks' metric objects, in the order of the ranks; [] on other ranks.

        All ranks call it.
        """
        return gather_objects(states, self._ranks, self.device)

    def move(self, values: Any) -> Any:
        """Move nested values to the training's device."""
        return moved(values, self.device)


class Collected:
    """Shares (parts) of validation batches, kept in host memory to call `metrics` once with all samples."""

    def __init__(self, ranks: Ranks, limit: int) -> None:
        self._ranks, self.limit = ranks, limit
        self.parts: list[MetricPart] = []
        self._bytes = 0

    @property
    def too_large(self) -> bool:
        """Return True if the stored shares of all ranks together exceed the limit in bytes."""
        return self._bytes * self._ranks.size > self.limit

    def add(self, part: MetricPart) -> None:
        """Store a copy of a share of a batch in host memory."""
        self.parts.append(part._replace(values=host_copy(part.values)))
        self._bytes += size_of(part.values)

    def clear(self) -> None:
        """Discard the stored shares."""
        self.parts, self._bytes = [], 0


class WholeSet:
    """Evaluation of a user's `metrics` that takes outputs, targets or other values of samples.

    If the function returns values per sample, they are averaged. If it returns single numbers, it is called once with
    all samples of the validation.
    """

    def __init__(
        self, metrics: Metrics, function: Callable[..., Any], asked: frozenset[str], ranks: Ranks, limit: int
    ) -> None:
        self._metrics, self._function, self._asked = metrics, function, asked
        self._ranks, self._collected = ranks, Collected(ranks, limit)
        self._kind: Kind = "unknown"
        self._sums = Sums()
        self._numbers: list[str] = []  # names of values that are not one per sample, as far as known
        self._error: Exception | None = None  # error of a share that may have been too small: one class, no AUC
        self._agreement = Agreement(ranks)
        metrics.reset()

    def add(self, part: MetricPart) -> None:
        """Call `metrics` with a share (a logical rank's part of a validation batch), and add the values per sample.

        The share's data is stored as long as `metrics` may have to be called with all samples at once.
        """
        values = {name: part.values[name] for name in sorted(self._asked)}  # in the same order on all ranks
        if self._agreement.refused:
            return
        try:
            if self._kind != "whole":
                self._try(part, values)
            if self._kind != "per sample":
                self._keep(part._replace(values=values))
        except InvalidDefinition as error:
            if not self._agreement.joins:
                raise
            self._agreement.refuse(error)
        if self._agreement.joins:
            self._agreement.add(values, part.samples)

    def end_batch(self, number: int) -> None:
        """Compare batch `number` with the other ranks' shares of it.

        If any rank has an error, all ranks raise it. Raises InvalidDefinition if data must be joined whose row shapes
        differ.
        """
        if self._agreement.joins:
            kinds = self._agreement.compare(number, self._kind, self._numbers)
            if "whole" in kinds and self._agreement.difference is not None:
                raise self._not_joined(self._agreement.difference)

    def finish(self) -> dict[str, float]:
        """Return the metrics by name: means of the values per sample, or the results of the call with all samples."""
        if "per sample" in self._agreement.compare(-1, self._kind, self._numbers):
            if self._error is not None:
                raise self._error
            return self._sums.means(self._ranks)
        if self._agreement.difference is not None:
            raise self._error or self._not_joined(self._agreement.difference)
        parts = self._metrics.gather(self._collected.parts)
        refusal, found = None, {}
        try:
            found = self._called_once(parts) if parts else {}
        except InvalidDefinition as error:
            refusal = error
        message, found = self._ranks.broadcast_object((refusal and refusal.message, found))
        if message is not None:
            raise refusal or InvalidDefinition(message)
        return dict(found)

    def _try(self, part: MetricPart, values: dict[str, Any]) -> None:
        """Call `metrics` with `values`, the arguments for one share; add its results if they are values per sample.

        If the results are single numbers, `metrics` must be called once with all samples. An error is kept for later,
        as the share may just be too small.
        """
        try:
            found = self._function(**values)
        except Exception as error:
            if self._kind == "per sample":
                raise
            self._error = error
            return
        values_found = mapping(found)
        kinds = {name: _kind(value, part.samples) for name, value in values_found.items()}
        self._numbers = [name for name, kind in kinds.items() if kind == "number"]
        if "number" in kinds.values() and part.samples > 1:
            if self._kind == "per sample":
                raise InvalidDefinition(
                    f"metrics() returned a number for {', '.join(self._numbers)}, and one value per sample before: "
                    "return one or the other"
                )
            self._kind = "whole"
            return
        for name, value in values_found.items():
            self._sums.add(name, value, part.samples, part.logical)
        if part.samples > 1 and self._kind == "unknown":
            if self._error is not None:
                raise self._error
            self._kind = "per sample"
            self._collected.clear()

    def _keep(self, part: MetricPart) -> None:
        self._collected.add(part)
        if not self._collected.too_large:
            return
        if self._error is not None:
            raise self._error
        if self._kind == "whole" or self._numbers:
            raise InvalidDefinition(
                f"{self._once(self._numbers)}, and these are more than {_size(self._collected.limit)}: {_INSTEAD}"
            )
        self._kind = "per sample"  # each share had one sample and returned one value
        self._collected.clear()

    def _once(self, numbers: list[str]) -> str:
        what = " and ".join(sorted(self._asked & _OF_SAMPLES))
        names = f" ({', '.join(numbers)})" if numbers else ""
        return f"metrics() returns a number{names}, so it is called once with {what} of all validation samples"

    def _not_joined(self, why: str) -> InvalidDefinition:
        return InvalidDefinition(f"{self._once(self._agreement.numbers)}, and {why}: {_PAD}, or {_INSTEAD}")

    def _called_once(self, parts: list[MetricPart]) -> dict[str, float]:
        counts = [part.samples for part in parts]
        try:
            values = {name: join(counts, [part.values[name] for part in parts], name) for name in sorted(self._asked)}
        except InvalidDefinition as error:
            raise self._not_joined(error.message) from self._error
        values = self._metrics.move(values)
        self._metrics.reset()
        found = mapping(self._function(**values))
        return {
            own: each
            for name, value in found.items()
            for own, each in _of_all(name, value, sum(counts), values).items()
        }


class OfObjects:
    """Evaluation of a user's `metrics` that returns metric objects, such as those of torchmetrics.

    The objects are updated batch by batch, and their states on all ranks are merged at the end.
    """

    def __init__(self, metrics: Metrics, found: Any, ranks: Ranks, limit: int) -> None:
        """Set up the metric objects in `found`, the result of the user's `metrics`.

        `finish` returns numbers in `found` unchanged. `limit` is the most data, in bytes over all ranks, that may be
        collected.
        """
        self._metrics, self._ranks, self._collected = metrics, ranks, Collected(ranks, limit)
        values = named_metrics(found)
        self._objects = {name: each for name, each in values.items() if is_metric(each)}
        self._numbers = {name: number(name, each) for name, each in values.items() if name not in self._objects}
        self._mergeable = {name: each for name, each in self._objects.items() if states_of(each)}
        self._others = {name: each for name, each in self._objects.items() if name not in self._mergeable}
        for each in self._objects.values():
            keep_to_itself(each)
            each.reset()
            if callable(to := getattr(each, "to", None)):
                to(metrics.device)

    def add(self, part: MetricPart) -> None:
        """Update metric objects whose states can be merged; for others, store outputs and targets for rank 0."""
        values = {name: part.values[name] for name in ("output", "target")}
        for each in self._mergeable.values():
            each.update(values["output"], values["target"])
        if self._others:
            self._collected.add(part._replace(values=values))
            if self._collected.too_large:
                raise InvalidDefinition(
                    f"{', '.join(self._others)} of metrics() cannot be merged over ranks as torchmetrics can, and the "
                    f"outputs and targets of all validation samples are more than {_size(self._collected.limit)}"
                )

    def end_batch(self, number: int) -> None:
        """Do nothing, as metric objects need no comparison of batches between ranks."""

    def finish(self) -> dict[str, float]:
        """Return each metric's results over all samples, by name."""
        per_rank = self._metrics.gather_states({name: states_of(each) for name, each in self._mergeable.items()})
        parts = self._metrics.gather(self._collected.parts)
        found: dict[str, float] = {}
        if self._ranks.rank == 0:
            for name, each in self._mergeable.items():
                merge(each, [states[name] for states in per_rank], self._metrics.move)
            for part in parts:
                values = self._metrics.move(part.values)
                for each in self._others.values():
                    each.update(values["output"], values["target"])
            for name, each in self._objects.items():
                found |= computed(name, each)
        return dict(self._ranks.broadcast_object(found | self._numbers))


def _kind(value: Any, samples: int) -> Literal["per sample", "number"]:
    if isinstance(value, Tensor):
        return "per sample" if value.dim() and (value.numel() != 1 or samples == 1) else "number"
    return "number"


def _of_all(name: str, value: Any, samples: int, values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers by name that follow from one item of what `metrics` returned for all samples at once.

    `name` and `value` are the item. A metric object is computed, a value per sample (of `samples`) averaged. `values`
    are the arguments with which `metrics` was called.
    """
    if is_metric(value):
        if getattr(value, "_update_count", 1) == 0:  # a torchmetrics metric that was created, but never updated
            value.update(values["output"], values["target"])
        return computed(name, value)
    if isinstance(value, Tensor) and value.dim() and len(value) == samples:
        return {name: float(value.detach().double().mean())}
    return {name: number(name, value)}


def _size(count: int) -> str:
    return f"{count / 1e9:g} GB"
