"""Call a training step of the user's, `step` or `step_<name>`, with the models and the batch that it names."""

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
    """Return the loss and the logged values of a batch on the device; None if the step trains nothing this time.

    `index` is the number of steps taken before, in a validation the batch's number.
    """
    assert objective.function is not None
    values: dict[str, Any] = {"batch": batch, "epoch": epoch, "index": index, "model": model, **parts_of(model)}
    if objective.asks & {"input", "target"}:
        inputs = run.rule.split(batch)
        values |= {"input": inputs.value, "target": inputs.target}
    return step_result(objective.role, run.files.inside(objective.function)(**values))
