"""Separate frozen tensors from trained ones, so that an experiment's checkpoints share one copy of the frozen ones."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Protocol, runtime_checkable

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from kernel_backend.checkpoints.base import FROZEN
from kernel_backend.runner.checkpoint.saving import Parts
from kernel_backend.runner.determinism.digests import tensor_digest

LEAST = 4096  # bytes; fewer are not worth a file of their own


@runtime_checkable
class HoldsFrozen(Protocol):
    """Checkpoint part that has frozen tensors, which are not trained."""

    def frozen(self) -> set[str]:
        """Return the names, within the part, of the tensors that are not trained."""


def split_frozen(name: str, tensors: Mapping[str, Tensor], frozen: Set[str]) -> dict[str, dict[str, Tensor]]:
    """Split the tensors of checkpoint part `name` by whether they are trained; return the resulting parts by name.

    Part `<name>` has the trained tensors, and part `<name>.frozen` those named in `frozen`. If the latter have fewer
    than `LEAST` bytes, all tensors are in part `<name>`.
    """
    frozen = frozen & tensors.keys()
    size = sum(tensors[each].nbytes for each in frozen)
    if size < LEAST:
        return {name: dict(tensors)}
    return {
        name: {key: tensor for key, tensor in tensors.items() if key not in frozen},
        f"{name}{FROZEN}": {key: tensor for key, tensor in tensors.items() if key in frozen},
    }


def untrained(module: nn.Module) -> set[str]:
    """Return the names of a module's frozen tensors.

    These are parameters without `requires_grad`, and buffers of modules without trained parameters of their own, except
    buffers of a normalization layer in training mode.
    """
    found: set[str] = set()
    for path, each in module.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        own = dict(each.named_parameters(recurse=False, remove_duplicate=False))
        found |= {prefix + name for name, parameter in own.items() if not parameter.requires_grad}
        collects = isinstance(each, _NormBase) and each.training
        if not collects and not any(parameter.requires_grad for parameter in own.values()):
            found |= {prefix + name for name, _ in each.named_buffers(recurse=False, remove_duplicate=False)}
    return found


class Unchanging:
    """Detector of frozen tensors that nevertheless change in training, and so are saved with the trained tensors."""

    def __init__(self) -> None:
        self._digests: dict[tuple[str, str], str] = {}
        self._changing: set[tuple[str, str]] = set()

    def sort(self, parts: Parts) -> dict[str, dict[str, Tensor]]:
        """Return the checkpoint parts to write, as {part: {tensor name: tensor}}.

        Frozen tensors whose bytes differ from those in an earlier call are moved to the part of the trained tensors.
        """
        found = {name: dict(tensors) for name, tensors in parts.items()}
        for part in [each for each in found if each.endswith(FROZEN)]:
            trained = found.setdefault(part.removesuffix(FROZEN), {})
            for name in list(found[part]):
                if self._has_changed(part, name, found[part][name]):
                    trained[name] = found[part].pop(name)
        return {name: tensors for name, tensors in found.items() if tensors}

    def _has_changed(self, part: str, name: str, tensor: Tensor) -> bool:
        key = part, name
        if key not in self._changing:
            digest = tensor_digest(tensor)
            if self._digests.setdefault(key, digest) != digest:
                self._changing.add(key)
        return key in self._changing
