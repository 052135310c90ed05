"""Find modules outside the model that the training uses, such as a teacher or a loss with state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from kernel_backend.runner.determinism.reachability import held_by


def auxiliary_modules(model: nn.Module, **objects: Any) -> dict[str, nn.Module]:
    """Return, by path, the modules outside the model to which the model's attributes or the `objects` refer.

    A path is text such as `criterion.teacher`. Of nested modules, only the outermost is returned. User code may create
    such modules in a function, such as `def criterion()`, or at the top level of a cell.
    """
    known = set(model.modules())
    found: dict[str, nn.Module] = {}
    for way, obj in held_by({"model": model, **objects}):
        if isinstance(obj, nn.Module) and known.isdisjoint(own := set(obj.modules())):
            known |= own
            found[way] = obj
    return found


class AuxiliaryModules:
    """Checkpoint part with the modified weights of modules outside the model, such as those of a teacher.

    Weights that are never modified are not saved, as the user's code creates them again. Buffers are not in this part.
    """

    def __init__(self, modules: Mapping[str, nn.Module], unseen: bool) -> None:
        """Record torch's version counter of each weight, to detect later which weights were modified.

        `modules` are the modules outside the model, by path. With `unseen`, all weights are saved, because the user's
        code may modify tensors by `.data`, which does not increment the counter.
        """
        self._weights = {
            f"{name}.{own}": each for name, module in modules.items() for own, each in module.named_parameters()
        }
        self._versions = {name: -1 if unseen else each._version for name, each in self._weights.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return, by name, the weights that were modified after this object was created."""
        return {name: each for name, each in self._weights.items() if each._version != self._versions[name]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Copy the saved weights into the modules."""
        with torch.no_grad():
            for name, saved in state.items():
                self._weights[name].copy_(saved)
