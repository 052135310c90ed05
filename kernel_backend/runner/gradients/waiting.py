"""Tell gradients that wait for an update, as where batches are accumulated, from those that have done their work."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_SPENT = "_daylight_spent"  # attribute of a gradient: its version when weights were updated by it


def waiting_gradients(module: nn.Module) -> dict[str, Tensor]:
    """Return copies of the gradients, by parameter, that no update has used since they last changed."""
    gradients = {name: each.grad for name, each in module.named_parameters() if each.grad is not None}
    return {
        name: each.detach().clone() for name, each in gradients.items() if getattr(each, _SPENT, None) != each._version
    }


def restore_gradients(module: nn.Module, gradients: dict[str, Tensor]) -> None:
    """Set the gradients that `waiting_gradients` returned."""
    parameters = dict(module.named_parameters())
    for name, gradient in gradients.items():
        parameters[name].grad = gradient.to(parameters[name].device, copy=True)


def spend_gradients(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Mark the gradients by which an optimizer has updated weights; also as a post hook of its `step`."""
    for group in optimizer.param_groups:
        for each in group["params"]:
            if each.grad is not None:
                setattr(each.grad, _SPENT, each.grad._version)
