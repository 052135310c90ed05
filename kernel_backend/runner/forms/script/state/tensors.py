"""Make restored tensors of their saved class; a backward pass into a graph that was not saved raises NotSaved."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.runner.forms.script.state.tombstones import NotSaved


class Cut(torch.autograd.Function):
    """Autograd function for a restored tensor whose autograd graph was not saved: its backward pass raises NotSaved."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, name: str) -> Tensor:
        """Return a copy of the tensor; `name` is used in the error of its backward pass."""
        ctx.name = name
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        """Raise NotSaved, as the tensor's autograd graph was not saved."""
        raise NotSaved(
            f"backward() goes into {ctx.name}, whose graph is of steps before the checkpoint, which holds none: call "
            f"{ctx.name}.detach(), or let the graph end in each iteration"
        )


def as_kind(data: Tensor, kind: Any, requires_grad: bool) -> Any:
    """Return a tensor with the values of `data` and of class `kind`, such as a parameter."""
    if issubclass(kind, nn.Parameter):
        return kind(data, requires_grad)
    return (data if kind is Tensor else data.as_subclass(kind)).requires_grad_(requires_grad)
