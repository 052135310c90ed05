"""Weights averaged over the steps (`--ema`): what validation judges and `job.load()` gives."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from kernel_backend.runner.checkpoint.stateful import Model, lay_out_buffers


class WeightAverage:
    """An exponential moving average of a model's weights, as a model of the same kind."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Call it before anything else hangs on the model's parameters: it copies all of the model."""
        self._averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]

    @property
    def module(self) -> nn.Module:
        """The averaged model."""
        module: nn.Module = self._averaged.module
        return module

    def update(self, model: nn.Module) -> None:
        """Take in the weights after a step; of buffers it has the newest."""
        self._lay_out(model)
        self._averaged.update_parameters(model)

    def take_buffers(self, model: nn.Module) -> None:
        """Have the model's buffers."""
        self._lay_out(model)
        its = dict(model.named_buffers())
        with torch.no_grad():
            for name, mine in self.module.named_buffers():
                mine.copy_(its[name])

    def _lay_out(self, model: nn.Module) -> None:
        """Have memory for the buffers that a forward pass of the model has made since."""
        if sum(1 for _ in self.module.buffers()) != sum(1 for _ in model.buffers()):
            lay_out_buffers(self.module, dict(model.named_buffers()))

    def state_dict(self) -> dict[str, Any]:
        """By the names of the model's own."""
        return dict(self.module.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Overwrite it; the next update is not the first."""
        Model(self.module).load_state_dict(state)
        self._averaged.n_averaged.fill_(1)
