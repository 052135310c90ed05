"""Save and restore a sharded model and its optimizers, from whole as well as from sharded states."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from kernel_backend.runner.checkpoint.stateful import Model, Optimizer
from kernel_backend.runner.sharded.rows import sharded_like


class ShardedModel(Model):
    """Checkpoint part for a sharded model: this rank holds some rows of each parameter."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Overwrite parameters and buffers with those in `state`, whose tensors may be whole or sharded."""
        own = self.module.state_dict()
        super().load_state_dict({name: sharded_like(own.get(name), tensor) for name, tensor in state.items()})

    def frozen(self) -> set[str]:
        """Return an empty set: frozen parameters are sharded and stored like trained ones."""
        return set()


class ShardedOptimizer(Optimizer):
    """Checkpoint part for an optimizer whose state is sharded like the parameters."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the optimizer's state from `state`, whose tensors may be whole or sharded."""
        parameters = [each for group in self.parameter_groups for each in group["params"]]
        indices = [index for group in state["param_groups"] for index in group["params"]]
        own = dict(zip(indices, parameters, strict=True))
        states = {index: _sharded(own[index], values) for index, values in state["state"].items()}
        super().load_state_dict({**state, "state": states})

    def _laid_out(self, parameter: Tensor, saved: Tensor) -> Tensor:
        # Rows of a checkpoint were read into memory of their own already: a copy would hold all states twice.
        return saved if isinstance(saved, DTensor) else super()._laid_out(parameter, saved)


def _sharded(parameter: nn.Parameter, values: dict[str, Any]) -> dict[str, Any]:
    return {key: sharded_like(parameter, each) if isinstance(each, Tensor) else each for key, each in values.items()}
