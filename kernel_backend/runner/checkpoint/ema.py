"""Average weights over the steps (`--ema`), for validation and `job.load()`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from kernel_backend.runner.checkpoint.stateful import Model, lay_out_buffers


class WeightAverage:
    """Exponential moving average of a model's weights, held in a copy of the model."""

    def __init__(self, model: nn.Module, decay: float, part: type[Model] = Model) -> None:
        """Copy `model`; the copy's weights become the moving average, with decay factor `decay`.

        `part` is the class that saves and loads the copy's weights. Call this before anything else, such as an
        optimizer, refers to the model's parameters.
        """
        self._part = part
        self._averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]

    @property
    def module(self) -> nn.Module:
        """Return the averaged model."""
        module: nn.Module = self._averaged.module
        return module

    def update(self, model: nn.Module) -> None:
        """Update the average with the model's weights after a training step; buffers are copied instead of averaged."""
        self._lay_out(model)
        self._averaged.update_parameters(model)

    def take_buffers(self, model: nn.Module) -> None:
        """Copy the model's current buffers into the averaged model."""
        self._lay_out(model)
        its = dict(model.named_buffers())
        with torch.no_grad():
            for name, mine in self.module.named_buffers():
                mine.copy_(its[name])

    def _lay_out(self, model: nn.Module) -> None:
        """Allocate in the averaged model those buffers that the model has created in its first forward pass."""
        if sum(1 for _ in self.module.buffers()) != sum(1 for _ in model.buffers()):
            lay_out_buffers(self.module, dict(model.named_buffers()))

    def state_dict(self) -> dict[str, Any]:
        """Return the averaged weights under the model's own names."""
        return dict(self.module.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the averaged weights; the next update then averages with them instead of overwriting them."""
        self._part(self.module).load_state_dict(state)
        self._averaged.n_averaged.fill_(1)

    def frozen(self) -> set[str]:
        """Return the names of the parameters and buffers that are not trained."""
        return self._part(self.module).frozen()
