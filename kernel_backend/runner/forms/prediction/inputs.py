"""Find what a trained model takes of a batch: the inputs of a pair, its arguments of a dict, numbers of a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernel_backend.errors import InvalidDefinition


def default_prediction(model: Any) -> Callable[[Any, Any], Any]:
    """Return how a model predicts a batch if the cell has no function `predict`.

    A Lightning module with a `predict_step` of its own is called by that. Of a batch `(inputs, targets)` the model
    takes the inputs; of a dict, the arguments that it has by these names; of a table, its numbers as a matrix.
    """
    own_step = getattr(type(model), "predict_step", None)
    if own_step is not None and not own_step.__module__.startswith(("lightning.", "pytorch_lightning.", "keras.")):
        return lambda model, batch: model.predict_step(batch, 0)

    def predict(model: Any, batch: Any) -> Any:
        if hasattr(batch, "iloc"):
            return model(matrix(batch, next(iter(model.parameters()), torch.empty(0))))
        if isinstance(batch, list | tuple) and batch and isinstance(batch[0], Path):
            raise InvalidDefinition("the rows are files: write def predict(model, batch), whose batch is their paths")
        if isinstance(batch, list | tuple) and len(batch) > 1:
            batch = batch[0]
        elif isinstance(batch, list | tuple) and batch:
            (batch,) = batch
        found = model(**_taken(model, batch)) if isinstance(batch, dict) else model(batch)
        logits = getattr(found, "logits", None)
        return found if logits is None else logits

    return predict


def _taken(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Return those entries of a batch that the model takes by name, without targets."""
    parameters = inspect.signature(getattr(model, "forward", model)).parameters.values()
    names = {each.name for each in parameters}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    return {
        name: value for name, value in batch.items() if name not in ("label", "labels") and (takes_any or name in names)
    }


def matrix(table: Any, like: torch.Tensor) -> torch.Tensor:
    """Return the numbers of a DataFrame as a matrix on the device of `like`; raise InvalidDefinition for texts."""
    numbers = table.select_dtypes("number")
    if left := [str(name) for name in table.columns if name not in numbers.columns]:
        raise InvalidDefinition(
            f"columns of the table are no numbers: {', '.join(left[:6])}; write def predict(model, batch), whose batch "
            "is a DataFrame"
        )
    # Rows lie in memory one after the other, as in any batch: a table's columns do, and give other bits.
    return torch.tensor(numbers.to_numpy(dtype="float32"), device=like.device).contiguous()
