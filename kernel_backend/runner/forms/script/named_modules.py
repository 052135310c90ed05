"""Save a program's torch modules by variable name in its checkpoints, so that a notebook can load them.

The checkpoint part of the program's other state (ProgramPart) refers to the modules' tensors by digest, so that weights
are stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.checkpoints.writer import can_hold
from kernel_backend.definition.script.loops import TrainingLoop
from kernel_backend.definition.script.parts import SKELETON, STATE
from kernel_backend.errors import CheckpointDamaged
from kernel_backend.runner.checkpoint.frozen import untrained
from kernel_backend.runner.forms.script.state.blobs import Blobs, bytes_of, digest
from kernel_backend.runner.forms.script.state.skeleton import skeleton


class NamedModules:
    """Checkpoint part for the torch modules in a program's variables, or in attributes of objects in these."""

    def __init__(self, names: Mapping[str, Any], frames: Callable[[], Sequence[FrameType]]) -> None:
        """Set up the part. `names` are the program's globals; `frames` returns the stack frames of running loops."""
        self._names, self._frames = names, frames
        self._found: dict[str, nn.Module] = {}
        self._saved: dict[str, Any] = {}  # states of a checkpoint's modules, until their contents were taken

    def iteration(self, loop: TrainingLoop, frame: FrameType) -> None:
        """Find the modules when the first iteration of an outermost loop ends; later its function may have returned."""
        if loop.depth == 0 and not self._found:
            self._look()

    def found(self) -> dict[str, nn.Module]:
        """Return the modules that have parameters, each once, by the name of the outermost variable that holds it."""
        self._look()
        named: dict[int, tuple[str, nn.Module]] = {}
        for name, module in self._found.items():
            named.setdefault(id(module), (name, module))
        return dict(named.values())

    def state_dict(self) -> dict[str, Any]:
        """Return, by name, the state dict and the pickled structure of each module; shared tensors remain shared."""
        found = self._states()
        return {name: state | _structure(module) for name, module, state in found}

    def frozen(self) -> set[str]:
        """Return the names of the tensors in this part that are not trained; a checkpoint stores them apart."""
        return {f"{name}.{STATE}.{key}" for name, module in self.found().items() for key in untrained(module)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep the saved states for `contents_of`. The modules are restored with the program's other objects."""
        self._saved = state

    def shared(self, blobs: Blobs) -> dict[str, Any]:
        """Return where modules hold the same bytes as `blobs`, by digest, so that these need not be stored twice.

        A place is a module's name, a tensor's key in the module's state dict, and the tensor's strides.
        """
        memory = {(blob.data_ptr(), blob.numel()): name for name, blob in blobs.items()}
        places: dict[str, Any] = {}
        for module, _, state in self._states():
            for key, tensor in state[STATE].items():
                if isinstance(tensor, Tensor) and _fills_its_storage(tensor):
                    data = bytes_of(tensor)
                    name = memory.get((data.data_ptr(), data.numel())) or digest(data)
                    if name in blobs:
                        places.setdefault(name, {"module": module, "key": key, "strides": list(tensor.stride())})
        return places

    def contents_of(self, places: Mapping[str, Any]) -> Blobs:
        """Return, by digest, the bytes that this part holds as tensors of modules, from the loaded checkpoint.

        `places`, as from `shared`, says where they are. Raises CheckpointDamaged if bytes do not have their digest.
        """
        saved, self._saved = self._saved, {}
        found: Blobs = {}
        for name, place in places.items():
            tensor = saved[place["module"]][STATE][place["key"]]
            laid = torch.empty_strided(tensor.shape, place["strides"], dtype=tensor.dtype).copy_(tensor)
            found[name] = bytes_of(laid)
            if digest(found[name]) != name:
                raise CheckpointDamaged(f"{place['key']} of {place['module']} has not the bytes that the program had")
        return found

    def _states(self) -> list[tuple[str, nn.Module, dict[str, Any]]]:
        """Return name, module and state dict of each module; the modules with most tensors come first."""
        found = [(name, module, {STATE: _held(module)}) for name, module in self.found().items()]
        found.sort(key=lambda each: -len(each[2][STATE]))
        first: dict[Any, Tensor] = {}
        for _, _, state in found:
            state[STATE] = {key: first.setdefault(_memory(value), value) for key, value in state[STATE].items()}
        return found

    def _look(self) -> None:
        frames = [frame.f_locals for frame in self._frames()]
        scopes = [self._names, *(each for each in frames if each is not self._names)]
        self._found |= {name: each for scope in reversed(scopes) for name, each in _modules(scope)}
        self._found = {name: each for name, each in self._found.items() if any(True for _ in each.parameters())}


def _modules(names: Mapping[str, Any]) -> Iterator[tuple[str, nn.Module]]:
    """Yield name and module for each module in a namespace, then for those in attributes, such as `self.model`."""
    held = list(names.items())
    yield from ((name, each) for name, each in held if _is_module(each))
    for name, owner in held:
        inner = ((attribute, each) for attribute, each in _attributes(owner).items() if _is_module(each))
        yield from ((key if name == "self" else f"{name}.{key}", each) for key, each in inner)


def _is_module(value: Any) -> bool:
    return issubclass(type(value), nn.Module)  # isinstance would ask the object, which may raise, for its class


def _attributes(owner: Any) -> dict[str, Any]:
    """Return the attributes of an object of the program's classes that is no module; {} if it does not tell them."""
    if issubclass(type(owner), nn.Module | type) or type(owner).__module__ != "__main__":
        return {}
    try:
        return dict(vars(owner))
    except Exception:  # it has none, or is of a class that raises
        return {}


def _held(module: nn.Module) -> dict[str, Any]:
    """Return a module's state without tensors that this part cannot hold; the program's other state has them."""
    state = module.state_dict()
    return {key: value for key, value in state.items() if not isinstance(value, Tensor) or can_hold(value)}


def _structure(module: nn.Module) -> dict[str, Any]:
    made = skeleton(module)
    return {} if made is None else {SKELETON: made}


def _memory(value: Any) -> Any:
    """Return a key for a tensor's memory and layout, equal for tensors that view the same memory in the same way."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or not value.numel():
        return id(value)
    return str(value.device), value.data_ptr(), value.dtype, value.shape, value.stride()


def _fills_its_storage(tensor: Tensor) -> bool:
    """Return True if the tensor covers each byte of its storage exactly once, whatever the order of its dimensions."""
    if tensor.layout is not torch.strided or not 0 < tensor.nbytes == tensor.untyped_storage().nbytes():
        return False
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda dimension: -strides[dimension])
    return tensor.permute(order).is_contiguous()
