"""Recognise, without a test run, modules whose calls cannot be split or would not gain by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

_SMALL = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.Embedding, nn.EmbeddingBag)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def problem_of(module: nn.Module) -> str | None:
    """Return why a call of this module must run unsplit; None if only a test run can show whether it can be split."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return "it is called within a checkpoint"
    parts = list(module.modules())
    if any(isinstance(each, torch.jit.ScriptModule) for each in parts):
        return "it is compiled by torch.jit"
    if any(is_lazy(each) for each in module.parameters()):
        return "it is called for the first time"
    if any(getattr(each, "sparse", False) for each in parts if isinstance(each, nn.Embedding | nn.EmbeddingBag)):
        return "its gradients are sparse"
    if any(_has_hooks(each) for each in parts if each is not module):
        return "a part of it has a hook, which would see a rank's rows only"
    if any(_is_compiled(each) for each in parts) and any(
        isinstance(each, nn.modules.batchnorm._BatchNorm) for each in parts
    ):
        return "it is compiled, and normalises batches"
    return None


def is_small(module: nn.Module) -> bool:
    """Return True for a single layer that is as quickly computed as its tensors are sent, such as an Embedding."""
    return isinstance(module, _SMALL)


def _is_compiled(module: nn.Module) -> bool:
    return module._compiled_call_impl is not None or type(module).__name__ == "OptimizedModule"


def _has_hooks(module: nn.Module) -> bool:
    """Return True if a module has hooks other than those of `torch.nn.utils`, such as weight norm."""
    return any(not _of_torch(hook) for name in _HOOKS for hook in _hooks(module, name))


def _hooks(module: nn.Module, name: str) -> Iterator[Any]:
    yield from getattr(module, name).values()


def _of_torch(hook: Any) -> bool:
    return type(hook).__module__.startswith("torch.nn.utils.")
