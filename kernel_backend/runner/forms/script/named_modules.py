"""Hold the modules of a program by their names in its checkpoints, so that a notebook loads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from torch import nn

from kernel_backend.definition.script.loops import TrainingLoop
from kernel_backend.definition.script.parts import SKELETON, STATE
from kernel_backend.runner.forms.script.skeleton import skeleton


class NamedModules:
    """Part of checkpoints with the modules that variables of the program hold, and attributes of its objects."""

    def __init__(self, names: Mapping[str, Any], frames: Callable[[], Sequence[FrameType]]) -> None:
        """Look at the program's own `names`, and at those of the frames of its active training loops."""
        self._names, self._frames = names, frames
        self._found: dict[str, nn.Module] = {}

    def iteration(self, loop: TrainingLoop, frame: FrameType) -> None:
        """Remember the modules of an outer loop, which a function holds that may return before the program ends."""
        if loop.depth == 0 and not self._found:
            self._look()

    def found(self) -> dict[str, nn.Module]:
        """Return the modules with parameters by name; of several names for one, that of the outermost variable."""
        self._look()
        named: dict[int, tuple[str, nn.Module]] = {}
        for name, module in self._found.items():
            named.setdefault(id(module), (name, module))
        return dict(named.values())

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each module, and what makes it again."""
        return {name: _state(module) for name, module in self.found().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: the program's own part restores its modules."""

    def _look(self) -> None:
        frames = [frame.f_locals for frame in self._frames()]
        scopes = [self._names, *(each for each in frames if each is not self._names)]
        self._found |= {name: each for scope in reversed(scopes) for name, each in _modules(scope)}
        self._found = {name: each for name, each in self._found.items() if any(True for _ in each.parameters())}


def _modules(names: Mapping[str, Any]) -> list[tuple[str, nn.Module]]:
    """Return the modules of a namespace, then those of its objects: `model` of `self`, `trainer.model` of others."""
    own = [(name, each) for name, each in list(names.items()) if isinstance(each, nn.Module)]
    inner = [
        (attribute if name == "self" else f"{name}.{attribute}", each)
        for name, owner in list(names.items())
        if not isinstance(owner, nn.Module | type) and type(owner).__module__ == "__main__"
        for attribute, each in vars(owner).items()
        if isinstance(each, nn.Module)
    ]
    return [*own, *inner]


def _state(module: nn.Module) -> dict[str, Any]:
    made = skeleton(module)
    return {STATE: dict(module.state_dict())} | ({} if made is None else {SKELETON: made})
