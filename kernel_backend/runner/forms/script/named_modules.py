"""Save a program's torch modules and trained tensors by name in its checkpoints, so that a notebook can load them.

The checkpoint part of the program's other state (ProgramPart) refers to the modules' tensors by digest, so that weights
are stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.checkpoints.writer import can_hold
from kernel_backend.definition.script.loops import TrainingLoop
from kernel_backend.definition.script.parts import KIND, SKELETON, STATE, TIMES, VALUE
from kernel_backend.errors import CheckpointDamaged
from kernel_backend.runner.checkpoint.frozen import untrained
from kernel_backend.runner.forms.script.state.blobs import Blobs, bytes_of, digest
from kernel_backend.trained.skeleton import skeleton

_DEEPEST = 3  # containers and objects within each other that are looked into
_MOST = 1000  # elements of a container that are looked at


class NamedModules:
    """Checkpoint part for the torch modules in a program's variables, and in containers and objects in these.

    It also has what is trained without a module: tensors with gradients, and copies of a module's state, such as the
    best so far.
    """

    def __init__(self, names: Mapping[str, Any], frames: Callable[[], Sequence[FrameType]]) -> None:
        """Set up the part. `names` are the program's globals; `frames` returns the stack frames of running loops."""
        self._names, self._frames = names, frames
        self._found: dict[str, nn.Module] = {}
        self._times: dict[str, int] = {}  # by variable of a function: modules that it has held
        self._in: FrameType | None = None  # where the newest outermost loop ran
        self._saved: dict[str, Any] = {}  # states of a checkpoint's modules, until their contents were taken

    def iteration(self, loop: TrainingLoop, frame: FrameType) -> None:
        """Find the modules when the first iteration of an outermost loop ends; later its function may have returned."""
        if loop.depth == 0 and frame is not self._in:
            self._in = frame
            self._look()

    def found(self) -> dict[str, nn.Module]:
        """Return the modules that have parameters, each once, by the name of the outermost variable that holds it."""
        self._look()
        named: dict[int, tuple[str, nn.Module]] = {}
        lasting = dict(_modules(self._names))
        for name, module in sorted(self._found.items(), key=lambda each: lasting.get(each[0]) is not each[1]):
            named.setdefault(id(module), (name, module))
        return dict(named.values())

    def state_dict(self) -> dict[str, Any]:
        """Return, by name, the state dict and the pickled structure of each module; shared tensors remain shared.

        A module that is also in a container has both names. Trained tensors have a state of one tensor.
        """
        states = self._states()
        found = {name: state | _structure(module) for name, module, state in states}
        named = {id(module): name for name, module, _ in states}
        found |= {name: found[named[id(each)]] for name, each in _modules(self._names) if id(each) in named}
        times = {name: {TIMES: times} for name, times in self._times.items() if times > 1 and name in found}
        found |= {name: found[name] | count for name, count in times.items() if name not in self._names}
        return found | {name: value for name, value in self._values(states).items() if name not in found}

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
        states = self._states()
        held = [(name, state) for name, _, state in states] + list(self._values(states).items())
        for module, state in held:
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
        found = [(name, module, {STATE: _state_of(module)}) for name, module in self.found().items()]
        found.sort(key=lambda each: -len(each[2][STATE]))
        first: dict[Any, Tensor] = {}
        for _, _, state in found:
            state[STATE] = {key: first.setdefault(_memory(value), value) for key, value in state[STATE].items()}
        return found

    def _values(self, states: Iterable[tuple[str, nn.Module, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
        """Return, by name, what the program's variables hold of weights outside of its modules, which have `states`."""
        owned = {_memory(tensor) for _, _, state in states for tensor in state[STATE].values()}
        keys = [state[STATE].keys() for _, _, state in states]
        found: dict[str, dict[str, Any]] = {}
        for name, value in _held(self._names):
            if _is_weight(value) and _memory(value) not in owned:
                found[name] = {STATE: {VALUE: value.detach()}, KIND: VALUE}
            elif _is(value, dict) and any(value.keys() == each for each in keys) and _are_tensors(value):
                found[name] = {STATE: dict(value), KIND: STATE}
        return found

    def _look(self) -> None:
        frames = [frame.f_locals for frame in self._frames()]
        scopes = [self._names, *(each for each in frames if each is not self._names)]
        for name, each in [pair for scope in reversed(scopes) for pair in _modules(scope)]:
            if any(True for _ in each.parameters()):
                self._times[name] = self._times.get(name, 0) + (self._found.get(name) is not each)
                self._found[name] = each


def _modules(names: Mapping[str, Any]) -> Iterator[tuple[str, nn.Module]]:
    """Yield name and module for each module in a namespace, then for those further within, such as `self.model`."""
    yield from ((name, each) for name, each in list(names.items()) if _is(each, nn.Module))
    yield from ((name, each) for name, each in _held(names) if name not in names and _is(each, nn.Module))


def _held(names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield name and value for each value in a namespace, in the containers and in the program's objects in it."""
    queue = [(name, value, 0) for name, value in list(names.items()) if not name.startswith("__")]
    seen: set[int] = set()
    for name, value, depth in queue:
        yield name, value
        if depth < _DEEPEST and id(value) not in seen:
            seen.add(id(value))
            queue += [(inner, each, depth + 1) for inner, each in islice(_inside(name, value), _MOST)]


def _inside(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if _is(value, list, tuple):
        yield from ((f"{name}[{index}]", each) for index, each in enumerate(value))
    elif _is(value, dict):
        yield from ((f"{name}[{key!r}]", each) for key, each in list(value.items()) if _is(key, str, int))
    elif type(value).__module__ == "__main__" and not _is(value, nn.Module, type):
        yield from ((key if name == "self" else f"{name}.{key}", each) for key, each in _attributes(value).items())


def _is(value: Any, *kinds: type) -> bool:
    return issubclass(type(value), kinds)  # isinstance would ask the object, which may raise, for its class


def _is_weight(value: Any) -> bool:
    return _is(value, Tensor) and can_hold(value) and value.requires_grad and value.is_leaf


def _attributes(owner: Any) -> dict[str, Any]:
    """Return an object's attributes; {} if it has none, or does not tell them."""
    try:
        return dict(vars(owner))
    except Exception:  # of the object's class
        return {}


def _state_of(module: nn.Module) -> dict[str, Any]:
    """Return a module's state without tensors that this part cannot hold; the program's other state has them."""
    state = module.state_dict()
    return {key: value for key, value in state.items() if not isinstance(value, Tensor) or can_hold(value)}


def _are_tensors(values: dict[str, Any]) -> bool:
    return len(values) > 0 and all(_is(each, Tensor) and can_hold(each) for each in values.values())


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
