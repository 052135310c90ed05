"""Save and restore what users' code keeps from step to step: globals, closures and attributes of their objects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CellType, FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from kernel_backend.checkpoints.writer import can_hold
from kernel_backend.installed_code import is_installed
from kernel_backend.runner.determinism.reachability import MOST_OBJECTS, attributes_of, held_by
from kernel_backend.runner.determinism.state_between_calls import changed_attributes, changed_variables, is_of_user

MOST_ITEMS = 100_000  # limit of the items of what is kept, as all of it is in each checkpoint

_LONGEST = 63  # bits of an integer that every reader of JSON reads as it is
_PLAIN = (type(None), bool, int, float, str)
_ELSEWHERE = (nn.Module, torch.optim.Optimizer, LRScheduler, torch.Generator)  # in other parts of a checkpoint


class Place(NamedTuple):
    """Variable or attribute that users' code changes, with the object that has it."""

    name: str  # for the user, such as `count` or `Meter.seen`
    owner: Any  # a namespace, the cell of a closure, or an object
    key: str

    def get(self) -> Any:
        """Return the value; None before it was assigned."""
        if isinstance(self.owner, CellType):
            try:
                return self.owner.cell_contents
            except ValueError:
                return None
        held = self.owner if isinstance(self.owner, dict) else attributes_of(self.owner)
        return None if held is None else held.get(self.key)

    def put(self, value: Any) -> None:
        """Assign a value."""
        if isinstance(self.owner, CellType):
            self.owner.cell_contents = value
        elif isinstance(self.owner, dict):
            self.owner[self.key] = value
        else:
            setattr(self.owner, self.key, value)


class RetainedState:
    """State of this rank that no other part of a checkpoint holds: what functions and methods of the user change."""

    def __init__(self, called: Mapping[str, Any], registered: Iterable[Any] = ()) -> None:
        """Find the state that code reached from `called`, objects by name, changes.

        Values and objects that are `registered` are left out, as checkpoints hold them.
        """
        held = {id(each) for value in registered for each in _within(value)}
        self._places = {
            way: each
            for way, each in _places(called)
            if id(each.get()) not in held and id(each.owner) not in held and not isinstance(each.get(), _ELSEWHERE)
        }
        self._first = {way: each.get() for way, each in self._places.items()}
        self._ended: dict[str, Any] | None = None
        self.unheld: dict[str, None] = {}  # names of what could not be saved so far
        self.tell: Callable[[Iterable[str]], None] = lambda _: None  # called with these names where they become more
        self.state_dict()

    @property
    def names(self) -> list[str]:
        """Return the names of what is kept, such as `count` or `Meter.seen`."""
        return list(dict.fromkeys(each.name for each in self._places.values()))

    @property
    def attributes(self) -> set[tuple[int, str]]:
        """Return the attributes that are kept, as the `id()` of an object and the attribute's name."""
        return {(id(each.owner), each.key) for each in self._places.values()}

    def end(self) -> None:
        """Copy the current state: from now on `state_dict` returns this copy."""
        self._ended = self.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all values that can be saved."""
        if self._ended is not None:
            return self._ended
        found: dict[str, Any] = {}
        before = len(self.unheld)
        for way, place in self._places.items():
            value = place.get()
            try:
                found[way] = _packed(value, self._first[way], _Budget())
            except Exception:  # such as one that the user's own container raises: it costs the training nothing
                if _keeps(value):
                    self.unheld[place.name] = None
        if len(self.unheld) > before:
            self.tell(self.unheld)
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the values that `state_dict` returned; containers and objects stay the same ones.

        A value that cannot be put back is told as one that no checkpoint holds.
        """
        refused: dict[str, None] = {}
        for way, saved in state.items():
            if (place := self._places.get(way)) is not None:
                try:
                    before = place.get()
                    value = _refilled(before, saved)
                    if value is not before:
                        place.put(value)
                except Exception:  # such as of a property that takes no value
                    refused[place.name] = None
        if refused:
            self.unheld |= refused
            self.tell(self.unheld)


def without(names: Iterable[str]) -> str:
    """Return the guarantee of a training whose checkpoints lack what the user's code keeps under these names."""
    return (
        f"not reproducible: {', '.join(names)}: kept from step to step, and no checkpoint can hold it: keep numbers, "
        "texts, tensors, or lists and dicts of these"
    )


def of_each_slot(names: Iterable[str]) -> str:
    """Return the note for several slots, each of which keeps these values for itself."""
    return (
        f"{', '.join(names)}: kept from step to step by each slot for itself: where the slots' values differ, as those "
        "of their batches do, results depend on the number of slots"
    )


def _places(called: Mapping[str, Any]) -> Iterator[tuple[str, Place]]:
    """Yield each variable and attribute that code reached from `called` changes, with its path."""
    for way, obj in held_by(called):
        if type(obj) is FunctionType:
            if not is_installed(obj.__code__.co_filename):
                yield from _of_function(obj)
        elif is_of_user(obj) and (attributes := attributes_of(obj)) is not None:
            for name in changed_attributes(type(obj)):
                if not isinstance(obj, nn.Module) or not _is_of_torch(attributes, name):
                    yield f"{way}.{name}", Place(f"{type(obj).__name__}.{name}", obj, name)


def _of_function(function: FunctionType) -> Iterator[tuple[str, Place]]:
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for name in changed_variables(function):
        if name in cells:
            yield f"{function.__module__}.{function.__qualname__} {name}", Place(name, cells[name], name)
        elif name in function.__globals__:
            yield f"{function.__module__} {name}", Place(name, function.__globals__, name)


def _within(registered: Any) -> Iterator[Any]:
    """Yield a registered value and what it holds, without modules, whose attributes no `state_dict` has."""
    waiting, seen = [registered], set[int]()
    while waiting and len(seen) < MOST_OBJECTS:
        obj = waiting.pop()
        ours = type(obj).__module__.startswith("kernel_backend.")
        if ours or id(obj) in seen or isinstance(obj, (nn.Module, *_PLAIN)):
            continue
        seen.add(id(obj))
        yield obj
        if isinstance(obj, list | tuple | set | deque):
            waiting += list(obj)[:MOST_OBJECTS]
        elif isinstance(obj, dict):
            waiting += list(obj.values())[:MOST_OBJECTS]
        else:
            waiting += (attributes_of(obj) or {}).values()


def _is_of_torch(attributes: Mapping[str, Any], name: str) -> bool:
    """Return True for a parameter, buffer or module in a torch module, given the module's `__dict__`."""
    return any(name in attributes.get(each, ()) for each in ("_parameters", "_buffers", "_modules"))


def _keeps(value: Any) -> bool:
    """Return True for a value that users fill, unlike a file, a progress bar or an activation of this step."""
    if isinstance(value, Tensor):
        return value.grad_fn is None
    return isinstance(value, list | dict | set | deque | np.ndarray) or bool(changed_attributes(type(value)))


# Values in a checkpoint


class _Unheld(Exception):
    """Raised for a value that a checkpoint cannot hold."""


class _Budget:
    """Count of the items that may still be saved."""

    def __init__(self) -> None:
        self._left = MOST_ITEMS

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise _Unheld


def _packed(value: Any, first: Any, budget: _Budget) -> Any:
    """Return a copy of `value` of what checkpoints hold; raise _Unheld if it is, or has, another thing.

    An object of the user is saved where it was there at the start already, as `first`.
    """
    if type(value) in _PLAIN and not (type(value) is int and value.bit_length() > _LONGEST):
        return value
    if isinstance(value, Tensor):
        if value.grad_fn is not None or not can_hold(value):
            raise _Unheld
        leaf = isinstance(value, nn.Parameter)
        return {"$value": value.detach().cpu().clone(), "on": value.device.type, "leaf": leaf}
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject or value.dtype.kind not in "biuf":
            raise _Unheld
        return {"$array": torch.from_numpy(np.array(value)), "scalar": isinstance(value, np.generic)}
    if isinstance(value, list | tuple | set | deque) and not hasattr(value, "_fields"):
        budget.take(len(value))
        kind = next(each for each in (list, tuple, set, deque) if isinstance(value, each))
        items = [_packed(each, None, budget) for each in value]
        return {"$items": items, "kind": kind.__name__, "most": getattr(value, "maxlen", None)}
    if isinstance(value, dict):
        budget.take(len(value))
        return {"$keys": [_packed(each, None, budget) for each in value]} | {
            "values": [_packed(each, None, budget) for each in value.values()]
        }
    attributes = attributes_of(value)
    if value is not first or attributes is None or not is_of_user(value):
        raise _Unheld
    return {"$attributes": dict(_held_attributes(attributes, budget))}


def _held_attributes(attributes: Mapping[str, Any], budget: _Budget) -> Iterator[tuple[str, Any]]:
    for name, value in attributes.items():
        try:
            yield name, _packed(value, None, budget)
        except _Unheld:
            continue


def _refilled(now: Any, saved: Any) -> Any:
    """Return a saved value; a container or object that is there `now` is filled with it and stays the same one."""
    if not isinstance(saved, dict):
        return saved
    if "$value" in saved:
        return _tensor(now, saved["$value"].to(saved["on"]), saved.get("leaf", False))
    if "$array" in saved:
        array = saved["$array"].numpy().copy()
        return array[()] if saved["scalar"] else array
    if "$keys" in saved:
        return _dict(now, [_refilled(None, each) for each in saved["$keys"]], saved["values"])
    if "$items" in saved:
        return _items(now, [_refilled(None, each) for each in saved["$items"]], saved["kind"], saved["most"])
    for name, value in saved["$attributes"].items():
        held = attributes_of(now)
        if held is not None:
            setattr(now, name, _refilled(held.get(name), value))
    return now


def _tensor(now: Any, value: Tensor, leaf: bool) -> Tensor:
    """Return a saved tensor; a parameter that is there `now` takes its values, as an optimizer may hold it."""
    if leaf and isinstance(now, nn.Parameter) and now.shape == value.shape:
        with torch.no_grad():
            return now.copy_(value)
    return nn.Parameter(value) if leaf else value


def _dict(now: Any, keys: list[Any], values: list[Any]) -> Any:
    before = dict(now) if isinstance(now, dict) else {}
    found = {key: _refilled(before.get(key), value) for key, value in zip(keys, values, strict=True)}
    if not isinstance(now, dict):
        return found
    now.clear()
    now.update(found)
    return now


def _items(now: Any, items: list[Any], kind: str, most: int | None) -> Any:
    if kind == "tuple":
        return tuple(items)
    found: Any = set() if kind == "set" else deque(maxlen=most) if kind == "deque" else []
    found = now if isinstance(now, type(found)) else found
    found.clear()
    (found.update if kind == "set" else found.extend)(items)
    return found
