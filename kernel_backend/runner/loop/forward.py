"""Run a share of a batch through a model: to the device, with random numbers seeded by position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from kernel_backend.runner.data import Batch
from kernel_backend.runner.determinism import seeds

if TYPE_CHECKING:
    from kernel_backend.runner.loop.training import Training


def forward(run: Training, model: nn.Module, batch: Batch, epoch: int) -> dict[str, Any]:
    """Run a batch through a model and return the loop values that `loss` and `metrics` may take."""
    data = to_device(batch.data, run.device)
    inputs = run.rule.split(data)
    return {
        "output": model(*inputs.positional, **inputs.named),
        "target": inputs.target,
        "input": inputs.value,
        "batch": data,
        "epoch": epoch,
    }


def evaluated(run: Training, model: nn.Module, batch: Batch, epoch: int) -> dict[str, Any]:
    """Return the loop values of a validation batch for `loss` and `metrics`; run the model only for `output`."""
    if run.uses_output:
        return forward(run, model, batch, epoch)
    data = to_device(batch.data, run.device)
    values = {"batch": data, "epoch": epoch}
    if run.metrics_asks & {"input", "target"}:
        inputs = run.rule.split(data)
        values |= {"input": inputs.value, "target": inputs.target}
    return values


def parts(run: Training, shares: list[Batch]) -> list[tuple[int, Batch]]:
    """Return the non-empty shares of this process, each with its logical rank."""
    return [(rank, batch) for rank, batch in zip(run.logical.mine, shares, strict=True) if batch.samples]


def reseed(run: Training, *where: int | str) -> None:
    """Seed the main generators anew, and those that parts of the training hold."""
    value = seeds.mix(run.config.seed, *where)
    seeds.reseed(value)
    run.generators.seed(value)


def to_device(data: Any, device: torch.device) -> Any:
    """Return the batch with its tensors on the device; on a CPU it is there already."""
    if device.type == "cpu":
        return data
    if isinstance(data, Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, Mapping):
        return {name: to_device(value, device) for name, value in data.items()}
    if isinstance(data, list | tuple):
        values = [to_device(value, device) for value in data]
        return type(data)(*values) if hasattr(data, "_fields") else values
    return data.to(device) if hasattr(data, "to") else data
