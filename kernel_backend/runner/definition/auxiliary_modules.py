"""Find modules outside the model that its training uses: a teacher, a loss with state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from kernel_backend.runner.determinism.reachability import held_by


def auxiliary_modules(model: nn.Module, **things: Any) -> dict[str, nn.Module]:
    """Return the modules that the model and these objects hold or name, by path; none is part of another.

    A cell makes them in a function, as `def criterion()`, or at its top level.
    """
    known = set(model.modules())
    found: dict[str, nn.Module] = {}
    for way, thing in held_by({"model": model, **things}):
        if isinstance(thing, nn.Module) and known.isdisjoint(own := set(thing.modules())):
            known |= own
            found[way] = thing
    return found


class AuxiliaryModules:
    """Checkpoint part for modules outside the model, such as a teacher: the weights that were written to.

    Weights that are never written to follow from the definition. Buffers are each logical rank's own.
    """

    def __init__(self, modules: Mapping[str, nn.Module], unseen: bool) -> None:
        """Record the weights' versions.

        With `unseen`, tensors may be written to by `.data`, which increments no version; then all weights are saved.
        """
        self._weights = {
            f"{name}.{own}": each for name, module in modules.items() for own, each in module.named_parameters()
        }
        self._versions = {name: -1 if unseen else each._version for name, each in self._weights.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the weights that were written to, by name."""
        return {name: each for name, each in self._weights.items() if each._version != self._versions[name]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Overwrite the saved weights."""
        with torch.no_grad():
            for name, saved in state.items():
                self._weights[name].copy_(saved)
