"""Call the user's training step, `step` or `step_<name>`, with the models and values that its parameters name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from kernel_backend.runner.definition.functions import parts_of, step_result
from kernel_backend.runner.loop.objective import Objective

if TYPE_CHECKING:
    from kernel_backend.runner.loop.training import Training


def call_step(
    run: Training, objective: Objective, model: nn.Module, batch: Any, epoch: int, index: int
) -> tuple[Tensor, Mapping[str, Any]] | None:
    """Call the user's training step on a batch; return its loss and logged values, None if it trains nothing.

    `index` is the number of steps taken so far or, in a validation, the number of the batch.
    """
    assert objective.function is not None
    values: dict[str, Any] = {"batch": batch, "epoch": epoch, "index": index, "model": model, **parts_of(model)}
    if objective.asks & {"input", "target"}:
        inputs = run.rule.split(batch)
        values |= {"input": inputs.value, "target": inputs.target}
    return step_result(objective.role, run.files.inside(objective.function)(**values))
