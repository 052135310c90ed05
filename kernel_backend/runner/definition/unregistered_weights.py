"""Refuse optimizers that train tensors which the model does not register, as no checkpoint would have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from kernel_backend.errors import InvalidDefinition

_DEEPEST = 3  # containers in containers


def refuse_unregistered(model: nn.Module, optimizers: Iterable[Optimizer]) -> None:
    """Raise InvalidDefinition if an optimizer trains tensors that are no parameters of the model.

    The message names the attributes that hold them, such as a plain list of modules.
    """
    held = {id(each) for each in model.parameters()}
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    others = {id(each) for group in groups for each in group["params"]} - held
    if not others:
        return
    owner = type(model).__name__
    named = ", ".join(
        f"self.{path}.{name}".replace("..", ".")
        for path, each in model.named_modules()
        for name, value in vars(each).items()
        if not name.startswith("_") and any(id(tensor) in others for tensor in _tensors(value, _DEEPEST))
    )
    raise InvalidDefinition(
        f"the optimizer trains {len(others)} tensor{'s' * (len(others) > 1)} that {owner} does not register"
        f"{f' ({named})' * bool(named)}: checkpoints, job.load() and other slots would lack them. Assign a list of "
        "modules as nn.ModuleList(...), a dict as nn.ModuleDict(...), a tensor as nn.Parameter(...)"
    )


def _tensors(value: Any, left: int) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.parameters()
    elif left and isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _tensors(each, left - 1)
