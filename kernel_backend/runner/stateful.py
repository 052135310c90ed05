"""The parts of a training that have a state, and how it goes into a checkpoint and comes back to the last bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class Stateful(Protocol):
    """A part of a training that a checkpoint holds."""

    def state_dict(self) -> dict[str, Any]:
        """Its state: tensors, numbers and texts."""

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Be in this state again."""


class Model:
    """A model as a part of a checkpoint."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers by name."""
        return dict(self._model.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Overwrite them; buffers that the first forward pass makes are there, too."""
        lay_out_buffers(self._model, state)
        self._model.load_state_dict(state)


def lay_out_buffers(model: nn.Module, like: Mapping[str, Tensor]) -> None:
    """Have memory for the buffers among `like` of which `model` has only the names until its first forward pass."""
    for name, tensor in like.items():
        path, _, leaf = name.rpartition(".")
        module = model.get_submodule(path)
        if leaf in module._buffers and module._buffers[leaf] is None:
            device = next((each.device for each in model.parameters()), tensor.device)
            module._buffers[leaf] = torch.empty_like(tensor, device=device)


class Optimizer:
    """An optimizer as a part of a checkpoint."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        """The state of every parameter, and the groups."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Be as it was saved: torch's own loading casts float32 states of half-precision parameters.

        It also makes states contiguous, and fused steps walk through memory side by side with the parameter.
        """
        self._optimizer.load_state_dict(state)
        parameters = [each for group in self._optimizer.param_groups for each in group["params"]]
        indices = [index for group in state["param_groups"] for index in group["params"]]
        for parameter, index in zip(parameters, indices, strict=True):
            for key, saved in state["state"].get(index, {}).items():
                if isinstance(saved, Tensor) and key != "step":
                    self._optimizer.state[parameter][key] = _beside(parameter, saved)


def _beside(parameter: Tensor, saved: Tensor) -> Tensor:
    if saved.shape != parameter.shape:
        return saved.to(parameter.device)
    return torch.empty_like(parameter, dtype=saved.dtype).copy_(saved)
