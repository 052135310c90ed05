"""Track which gradients an optimizer step has used, so that checkpoints hold the accumulated ones not yet used."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_SPENT = "_daylight_spent"  # attribute of a gradient: its version at the last optimizer step


def waiting_gradients(module: nn.Module) -> dict[str, Tensor]:
    """Return copies of the gradients that have changed since an optimizer step last used them, by parameter name."""
    gradients = {name: each.grad for name, each in module.named_parameters() if each.grad is not None}
    return {
        name: each.detach().clone() for name, each in gradients.items() if getattr(each, _SPENT, None) != each._version
    }


def restore_gradients(module: nn.Module, gradients: dict[str, Tensor]) -> None:
    """Restore the gradients that `waiting_gradients` returned."""
    parameters = dict(module.named_parameters())
    for name, gradient in gradients.items():
        parameters[name].grad = gradient.to(parameters[name].device, copy=True)


def spend_gradients(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Mark the present gradients of an optimizer's parameters as used by a step.

    The other arguments are ignored, so that this can be registered as a post hook of `step`.
    """
    for group in optimizer.param_groups:
        for each in group["params"]:
            if each.grad is not None:
                setattr(each.grad, _SPENT, each.grad._version)
