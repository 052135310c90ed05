"""Run a share of a batch through a model: move the data to the device, seed random numbers by step and share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.data import Batch
from kernel_backend.runner.determinism import seeds
from kernel_backend.runner.metrics.join import fields_of, is_dataclass, rebuilt
from kernel_backend.runner.timing.clock import CLOCK

if TYPE_CHECKING:
    from kernel_backend.runner.loop.training import Training

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}  # types by `--amp`


def precision(amp: str | None, device: torch.device) -> Callable[[], AbstractContextManager[None]]:
    """Return a function that creates a context for a forward pass: `torch.autocast` with `--amp`, else a no-op."""
    return nullcontext if amp is None else partial(torch.autocast, device.type, _AUTOCAST[amp])


def forward(run: Training, model: nn.Module, batch: Batch, epoch: int, augments: bool = False) -> dict[str, Any]:
    """Run a share of a batch through the model; return by name the arguments that `loss` and `metrics` may take.

    With `augments`, the user's function `augment` changes the batch first.
    """
    data = augmented(run, batch.data, epoch) if augments else to_device(batch.data, run.device)
    inputs = run.rule.split(data)
    return {
        "output": model(*inputs.positional, **inputs.named),
        "target": inputs.target,
        "input": inputs.value,
        "batch": data,
        "epoch": epoch,
    }


def evaluated(run: Training, model: nn.Module, batch: Batch, epoch: int) -> dict[str, Any]:
    """Return by name the arguments of `loss` and `metrics` for a validation batch.

    The model is run only if one of them takes `output`.
    """
    if run.uses_output:
        return forward(run, model, batch, epoch)
    data = to_device(batch.data, run.device)
    values = {"batch": data, "epoch": epoch}
    if run.metrics_asks & {"input", "target"}:
        inputs = run.rule.split(data)
        values |= {"input": inputs.value, "target": inputs.target}
    return values


def augmented(run: Training, data: Any, epoch: int) -> Any:
    """Return the data of a training batch on the device, changed by the user's function `augment` if there is one."""
    on_device = to_device(data, run.device)
    if run.augment is None:
        return on_device
    changed = run.files.inside(run.augment)(batch=on_device, epoch=epoch, index=run.step)
    if changed is None:
        raise InvalidDefinition("augment() returned None: it must return the batch, changed or not")
    return changed


class Piece(NamedTuple):
    """Part of a global batch that is computed at once: a logical rank's share or, with `--accumulate`, a part of it."""

    rank: int  # logical rank
    draws: tuple[int, ...]  # seed parts that distinguish the pieces of a share
    batch: Batch


def pieces(run: Training, batches: list[Batch]) -> list[Piece]:
    """Return this process's parts of a global batch in the order of computation, each with its logical rank."""
    count, first = (run.config.accumulate or 1), run.logical.mine.start
    numbered = ((*divmod(number, count), batch) for number, batch in enumerate(batches))
    return [Piece(first + share, (number,) if count > 1 else (), batch) for share, number, batch in numbered]


def parts(run: Training, batches: list[Batch]) -> list[tuple[int, Batch]]:
    """Return this process's parts of a global batch that have samples, each after its logical rank."""
    return [(each.rank, each.batch) for each in pieces(run, batches) if each.batch.samples]


def reseed(run: Training, *where: int | str) -> None:
    """Seed all random generators that a training uses, by the experiment's seed and `where`.

    These are the global ones and those that model, functions and optimizers hold. `where` tells the uses of random
    numbers apart, such as "step", the step number and the logical rank.
    """
    value = seeds.mix(run.config.seed, *where)
    seeds.reseed(value)
    run.generators.seed(value)


def to_device(data: Any, device: torch.device) -> Any:
    """Return the batch with its tensors moved to the device; on a CPU, return it unchanged."""
    if device.type == "cpu":
        return data
    with CLOCK.part("transfer"):
        return _moved(data, device)


def _moved(data: Any, device: torch.device) -> Any:
    if isinstance(data, Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, Mapping):
        return {name: _moved(value, device) for name, value in data.items()}
    if is_dataclass(data):
        return rebuilt(data, {name: _moved(value, device) for name, value in fields_of(data).items()})
    if isinstance(data, list | tuple):
        values = [_moved(value, device) for value in data]
        return type(data)(*values) if hasattr(data, "_fields") else values
    return data.to(device) if hasattr(data, "to") else data
