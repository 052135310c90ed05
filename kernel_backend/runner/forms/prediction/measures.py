"""Measure a trained model: by the cell's `evaluate`, by the training's loss and metrics, or by its library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch

from kernel_backend.definition.prediction_form import EVALUATE, TARGET
from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.definition.functions import loss_and_logged, parts_of, step_result
from kernel_backend.runner.forms.prediction.inputs import matrix
from kernel_backend.runner.forms.prediction.model import TrainedModel
from kernel_backend.runner.loop.batch_rule import BatchRule
from kernel_backend.runner.loop.forward import precision
from kernel_backend.runner.loop.objective import label_of
from kernel_backend.runner.metrics.metric_objects import mapping
from kernel_backend.runner.metrics.sums import Sums
from kernel_backend.runner.metrics.whole_set import MetricPart, Metrics
from kernel_backend.runner.ranks.backends import Ranks

ByLibrary = Callable[[Iterator[Any]], dict[str, float]]  # takes all batches at once


class Measure(Protocol):
    """Accumulator of what is measured, over the batches of all ranks."""

    def add(self, number: int, batch: Any, rows: int) -> dict[str, float]:
        """Measure batch number `number` of all, which has `rows` rows; raise any error of the user's code.

        Return the means of this batch by name, as far as such are known before the end.
        """

    def end_round(self, number: int) -> None:
        """End a round, in which each rank has measured one batch or none; all ranks call it."""

    def finish(self) -> dict[str, float]:
        """Return the values by name, over all rows; all ranks call it."""


def measure_of(rank: RankContext, trained: TrainedModel, model: Any) -> Measure:
    """Return how to measure `model` batch by batch; raise InvalidDefinition if nothing says what to measure."""
    own = vars(rank.loaded.module).get(EVALUATE)
    if own is not None:
        return _ByFunction(lambda batch: own(model, batch), rank.ranks)
    functions = trained.functions
    measured = functions.steps or functions.has("loss") or functions.has("metrics")
    if isinstance(model, torch.nn.Module) and measured:
        return _ByTraining(rank, trained, model)
    if hasattr(model, "config") and hasattr(model, "forward"):  # of transformers, whose output has its loss
        return _ByFunction(lambda batch: {"loss": _own_loss(model(**batch))}, rank.ranks)
    raise InvalidDefinition(
        "the training has no loss(), step() or metrics() that measures its model: write def evaluate(model, batch), "
        'which returns values such as {"accuracy": (model(x).argmax(1) == y).float()}, into the file of --with'
    )


def library_measure(rank: RankContext, trained: TrainedModel, model: Any) -> ByLibrary | None:
    """Return the library's own way to measure a model of Lightning or Keras; None for other models.

    Raises InvalidDefinition on several slots, as it takes all batches.
    """
    own = {"lightning": _lightning, "keras": _keras}.get(trained.form)
    if own is None or EVALUATE in vars(rank.loaded.module):
        return None
    if rank.ranks.size > 1:
        raise InvalidDefinition(
            f"a model of {trained.form} is evaluated by its own function on one slot: leave out --slots, or write def "
            "evaluate(model, batch) into the file of --with"
        )
    return lambda batches: own(model, batches, trained.amp)


def labelled(batch: Any, target: str) -> Any:
    """Return a batch as it is, or of a DataFrame the pair of its numbers and the column `target`."""
    if not hasattr(batch, "iloc"):
        return batch
    if target not in batch.columns:
        names = ", ".join(map(str, batch.columns[:8]))
        raise InvalidDefinition(
            f"the rows have the columns {names}, and {f'no {target}' if target else 'nothing says which is the target'}"
            f": write --{TARGET} COLUMN"
        )
    column = batch[target].to_numpy()
    found = torch.tensor(column if column.dtype.kind in "iub" else column.astype("float32"))
    return matrix(batch.drop(columns=[target]), torch.empty(0)), found


class _ByFunction:
    """Measure by a function of a batch, which returns a value for each row, or numbers that are means of the batch."""

    def __init__(self, function: Callable[[Any], Any], ranks: Ranks) -> None:
        self._function, self._ranks, self._sums = function, ranks, Sums()

    def add(self, number: int, batch: Any, rows: int) -> dict[str, float]:
        return _summed(self._sums, mapping(self._function(batch)), rows, number)

    def end_round(self, number: int) -> None:
        pass

    def finish(self) -> dict[str, float]:
        return self._sums.means(self._ranks)


class _ByTraining:
    """Measure by the training's own `loss`, or what its steps return, and by its `metrics`, as a validation does."""

    def __init__(self, rank: RankContext, trained: TrainedModel, model: torch.nn.Module) -> None:
        functions = trained.functions
        self._model, self._ranks, self._sums = model, rank.ranks, Sums()
        self._epoch = int(trained.manifest.epoch)
        self._precision = precision(trained.amp, rank.device)
        self._rule = BatchRule(model, functions.takes_whole_batch, functions.leaves_loss_to_model)
        self._loss = functions.step_function("loss") if functions.has("loss") else None
        self._steps = {} if self._loss else {role: functions.training_step(role, model) for role in functions.steps}
        self._asked = frozenset[str]().union(*(functions.asked(role) for role in self._steps))
        self._metrics = None
        if functions.has("metrics"):
            asked = functions.asked("metrics")
            self._asked |= asked
            self._metrics = Metrics(functions.step_function("metrics"), asked, rank.ranks, rank.device).begin(
                self._epoch
            )

    def add(self, number: int, batch: Any, rows: int) -> dict[str, float]:
        with self._precision():
            return _summed(self._sums, self._values(number, batch, rows), rows, number)

    def _values(self, number: int, batch: Any, rows: int) -> dict[str, Any]:
        """Return the loss, or what the steps return; add the batch to the metrics."""
        found: dict[str, Any] = {}
        values = {"batch": batch, "epoch": self._epoch, "index": number}
        if self._loss is not None or self._asked & {"output", "target", "input"}:
            inputs = self._rule.split(batch)
            values |= {"target": inputs.target, "input": inputs.value}
            if self._loss is not None or "output" in self._asked:
                values["output"] = self._model(*inputs.positional, **inputs.named)
        if self._loss is not None:
            found["loss"], _ = loss_and_logged(self._loss(**values))
        for role, step in self._steps.items():
            with torch.enable_grad():  # a step may differentiate by its inputs
                result = step_result(role, step(model=self._model, **parts_of(self._model), **values))
            if result is not None:
                found |= {label_of(role): result[0], **result[1]}
        if self._metrics is not None:
            self._metrics.add(MetricPart(number, number, rows, values))
        return found

    def end_round(self, number: int) -> None:
        if self._metrics is not None:
            self._metrics.end_batch(number)

    def finish(self) -> dict[str, float]:
        means = self._sums.means(self._ranks)
        if self._metrics is None:
            return means
        with self._precision():
            return means | self._metrics.finish()


def _summed(sums: Sums, values: Mapping[str, Any], rows: int, number: int) -> dict[str, float]:
    """Add the values of a batch, each a number or one for each row, to the sums; return their means.

    Each batch is summed by itself, and the batches in their order, so that the result depends on no number of slots.
    """
    for name, value in values.items():
        sums.add(name, value, rows, number)
    return {
        name: float(value.detach().double().mean() if isinstance(value, torch.Tensor) else value)
        for name, value in values.items()
    }


def _own_loss(output: Any) -> Any:
    loss = getattr(output, "loss", None)
    if loss is None:
        raise InvalidDefinition(
            "the model returned no loss, as the rows have no labels: give rows with labels, or write def "
            "evaluate(model, batch) into the file of --with"
        )
    return loss


def _lightning(model: Any, batches: Iterator[Any], amp: str | None) -> dict[str, float]:
    from kernel_backend.runner.forms.lightning.api import Trainer
    from kernel_backend.runner.forms.lightning.arguments import PRECISION

    trainer = Trainer(
        accelerator="cpu" if model.device.type == "cpu" else "gpu",
        devices=1,
        precision=None if amp is None else PRECISION[amp],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        inference_mode=False,  # between two batches a checkpoint may be saved, which takes no inference tensors
    )
    (found,) = trainer.validate(model, batches, verbose=False)
    return {str(name): float(value) for name, value in found.items()}


def _keras(model: Any, batches: Iterator[Any], amp: str | None) -> dict[str, float]:
    from keras import tree  # whose layers have their own types

    arrays = (tree.map_structure(lambda each: each.numpy(), batch) for batch in batches)
    found = model.evaluate(arrays, verbose=0, return_dict=True)
    return {str(name): float(value) for name, value in found.items()}
