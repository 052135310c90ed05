"""Check that checkpoints hold each optimizer and the weights that it trains, before the optimizer's first step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from kernel_backend.errors import InvalidDefinition


class RegistrationCheck:
    """Check that the user has registered each optimizer and its weights for checkpoints, made at its first step.

    An optimizer or weights that are not registered would begin anew after a restart.
    """

    def __init__(self, registered: Mapping[str, Any], world: int, note: Callable[[str], None]) -> None:
        """Install the check as a hook that runs before the first step of every optimizer in this process.

        `registered` has the registered values by name, and may grow later. `world` is the number of ranks. The check
        raises InvalidDefinition, except in one case: with one rank, if neither an optimizer nor any of its weights are
        registered, only `note` is called with a warning.
        """
        self._registered, self._world, self._note = registered, world, note
        self._checked: dict[int, torch.optim.Optimizer] = {}
        self._handle = register_optimizer_step_pre_hook(self._before_step)

    def close(self) -> None:
        """Remove the hook: optimizers are no longer checked."""
        self._handle.remove()

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if id(optimizer) not in self._checked:
            self._checked[id(optimizer)] = optimizer
            self._check(optimizer)

    def _check(self, optimizer: torch.optim.Optimizer) -> None:
        values = list(self._registered.values())
        kind = type(optimizer).__name__
        name = next((name for name, value in self._registered.items() if value is optimizer), None)
        tensors = {id(each) for value in values for each in _tensors(value)}
        trained = [each for group in optimizer.param_groups for each in group["params"]]
        others = [each for each in trained if id(each) not in tensors]
        if name is None and len(others) == len(trained) and self._world == 1:
            self._note(f"run.restore() has neither this {kind} nor its weights: a restart begins them anew")
        elif name is None:
            raise InvalidDefinition(
                f"a {kind} trains weights and is not registered, so a restart would begin it anew, and slots would not "
                "train together: write run.restore(model=..., optimizer=...) with both before the loop"
            )
        elif others:
            raise InvalidDefinition(
                f"{name} trains a tensor of shape {tuple(others[0].shape)} that is not registered, so a restart would "
                f"begin it anew: register the module or the tensor too, as in run.restore(model=net, {name}=...)"
            )


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, nn.Module):
        buffers = [each for part in value.modules() for each in part._buffers.values() if each is not None]
        return [*value.parameters(), *buffers]
    return [value] if isinstance(value, Tensor) else []
