"""Save a program's modules by variable name in its checkpoints, so that a notebook can load them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from torch import nn

from kernel_backend.definition.script.loops import TrainingLoop
from kernel_backend.definition.script.parts import SKELETON, STATE
from kernel_backend.runner.forms.script.skeleton import skeleton


class NamedModules:
    """Checkpoint part with the modules in a program's variables and in attributes of its objects."""

    def __init__(self, names: Mapping[str, Any], frames: Callable[[], Sequence[FrameType]]) -> None:
        """Set up the part; `names` are the program's globals, `frames` returns the frames of its running loops."""
        self._names, self._frames = names, frames
        self._found: dict[str, nn.Module] = {}

    def iteration(self, loop: TrainingLoop, frame: FrameType) -> None:
        """Record the modules in an outer loop's function, which may return before the program ends."""
        if loop.depth == 0 and not self._found:
            self._look()

    def found(self) -> dict[str, nn.Module]:
        """Return the modules with parameters by name; of several names, that of the outermost variable."""
        self._look()
        named: dict[int, tuple[str, nn.Module]] = {}
        for name, module in self._found.items():
            named.setdefault(id(module), (name, module))
        return dict(named.values())

    def state_dict(self) -> dict[str, Any]:
        """Return each module's state, and its pickled structure."""
        return {name: _state(module) for name, module in self.found().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing, as the program's own part restores its modules."""

    def _look(self) -> None:
        frames = [frame.f_locals for frame in self._frames()]
        scopes = [self._names, *(each for each in frames if each is not self._names)]
        self._found |= {name: each for scope in reversed(scopes) for name, each in _modules(scope)}
        self._found = {name: each for name, each in self._found.items() if any(True for _ in each.parameters())}


def _modules(names: Mapping[str, Any]) -> list[tuple[str, nn.Module]]:
    """Return the modules of a namespace, then those in its objects' attributes, such as `model` of `self`."""
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
