"""Pickle values of a notebook so that objects and memory that they share are shared again in a job."""

from __future__ import annotations

import enum
import functools
import io
import pickle
import re
import sys
import types
from collections.abc import Collection, Mapping
from pathlib import Path, PurePath
from typing import IO, Any, NamedTuple

from kernel_backend.model.snapshot import MODULE, OTHER_MODULE
from kernel_backend.snapshots.keras_models import reduced_model
from kernel_backend.snapshots.torch_modules import reduced_module

NOTEBOOK = "__main__"  # module of classes that are defined in a notebook; in a job it is the definition
JOB = frozenset({NOTEBOOK, MODULE, OTHER_MODULE})  # modules of such classes in a job
_LOADED = "kernel_backend.snapshots.loaded"
_PLAIN = (str, bytes, int, float, complex, tuple, frozenset, range, slice, enum.Enum, PurePath, re.Pattern)
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_KINDS = {"numpy": ("dtype", "generic", "ufunc"), "torch": ("dtype", "device", "layout", "memory_format")}


class Pickled(NamedTuple):
    """Pickle of a value, the notebook's classes and functions in it, and folders of loaded definitions that it uses."""

    data: bytes
    needs: tuple[str, ...]
    definitions: tuple[Path, ...]


class TooLarge(Exception):
    """Error: a captured value takes too many bytes; `bytes` is the number counted so far."""

    def __init__(self, bytes: int) -> None:
        super().__init__(f"more than {bytes} bytes")
        self.bytes = bytes


def pickled(value: object, most: int | None = None) -> Pickled:
    """Return a value's pickle; raise TooLarge if it gets more than `most` bytes, or the error of the value's code."""
    buffer = _Bounded(most)
    pickler = _Pickler(buffer)
    pickler.dump(value)
    return Pickled(buffer.getvalue(), tuple(pickler.needs), pickler.definitions)


def unpickled(file: IO[bytes], namespace: Mapping[str, Any], own: Collection[str] = (NOTEBOOK,)) -> Any:
    """Return the value of a pickle; classes of the modules `own` are looked up in `namespace`."""
    return _Unpickler(file, namespace, own).load()


def sharing(values: Mapping[str, object]) -> list[list[str]]:
    """Return the names of values that share objects or memory of tensors, in groups of at least two."""
    groups: list[tuple[list[str], dict[int, object]]] = []
    for name, value in values.items():
        names, parts = [name], parts_of(value)
        joined = [group for group in groups if group[1].keys() & parts.keys()]
        groups = [group for group in groups if not group[1].keys() & parts.keys()]
        for others, theirs in joined:
            names, parts = [*others, *names], theirs | parts
        groups.append((names, parts))
    return [names for names, _ in groups if len(names) > 1]


def parts_of(value: object) -> dict[int, object]:
    """Return the objects in a value that are more than their content, such as lists, tensors and models, by id.

    No other object gets their ids while the parts are kept. Raises the error of a value that cannot be pickled.
    """
    pickler = _Pickler(_Nowhere())
    pickler.dump(value)
    fixed = (*_PLAIN, *_NAMED, *_of_libraries())
    return {id: part for id, (_, part) in pickler.memo.copy().items() if not isinstance(part, fixed)}


def storage_of_bytes(data: bytearray) -> Any:
    """Return a torch storage with this content; pickles call it by name."""
    import torch

    found = torch.empty(len(data), dtype=torch.uint8)
    if data:
        found.copy_(torch.frombuffer(data, dtype=torch.uint8))
    return found.untyped_storage()


def typed_storage(storage: Any, dtype: Any) -> Any:
    """Return a torch storage as elements of `dtype`, which share its memory; pickles call it by name."""
    import torch

    kind: Any = torch.TypedStorage
    return kind(wrap_storage=storage, dtype=dtype, _internal=True)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.needs: dict[str, None] = {}
        self.modules: dict[str, None] = {}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | types.FunctionType):
            if obj.__module__ == NOTEBOOK:
                self.needs[obj.__qualname__.split(".")[0]] = None
            else:
                self.modules[obj.__module__] = None
        return reduced_object(obj)

    @property
    def definitions(self) -> tuple[Path, ...]:
        """Return the folders of loaded training definitions whose classes the pickled value uses; empty if none."""
        loaded = sys.modules.get(_LOADED)
        found = [loaded.definition_of(module) for module in self.modules] if loaded else []
        return tuple(dict.fromkeys(folder for folder in found if folder is not None))


def reduced_object(obj: Any) -> Any:
    """Return how to pickle a model, a tensor with its gradient, or memory of tensors; else NotImplemented.

    Torch would leave out the gradient, pickle the memory once per tensor, and refuse modules with parametrizations.
    """
    for reduced_by_library in (reduced_model(obj, JOB), reduced_module(obj)):
        if reduced_by_library is not NotImplemented:
            return reduced_by_library
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.Tensor) and obj.is_leaf and obj.grad is not None:
        reduced: Any = obj.__reduce_ex__(5)
        return (*reduced, obj.grad, None, None, set_gradient) if len(reduced) == 2 else NotImplemented
    if type(obj).__module__ not in ("torch.storage", "torch") or not type(obj).__name__.endswith("Storage"):
        return NotImplemented
    return _reduced_storage(obj)


def reduced_view(obj: Any, arrays: Collection[int]) -> Any:
    """Return how to pickle an array as a view of one of the `arrays`, given by their ids; else NotImplemented.

    Numpy would copy it.
    """
    base: Any = getattr(obj, "base", None)
    if id(base) not in arrays or type(obj).__qualname__ != "ndarray" or type(obj) is not type(base):
        return NotImplemented
    if not base.flags.c_contiguous or obj.dtype.hasobject:
        return NotImplemented
    return view_of, (base, obj.shape, obj.dtype, obj.ctypes.data - base.ctypes.data, obj.strides)


def view_of(base: Any, shape: tuple[int, ...], dtype: Any, offset: int, strides: tuple[int, ...]) -> Any:
    """Return an array of numpy that shares the memory of another; pickles call it by name."""
    return type(base)(shape, dtype, base, offset, strides)


def set_gradient(tensor: Any, gradient: Any) -> None:
    """Set the gradient of a tensor; pickles call it by name."""
    tensor.grad = gradient


def _reduced_storage(storage: Any) -> Any:
    import torch

    untyped = getattr(storage, "_untyped_storage", storage)
    if untyped.device.type != "cpu":
        return NotImplemented
    if untyped is not storage:
        return typed_storage, (untyped, storage.dtype)
    content: Any = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    return storage_of_bytes, (pickle.PickleBuffer(content),)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], namespace: Mapping[str, Any], own: Collection[str]) -> None:
        super().__init__(file)
        self._namespace, self._own = namespace, own

    def find_class(self, module: str, name: str) -> Any:
        if module not in self._own:
            return super().find_class(module, name)
        first, *rest = name.split(".")
        return functools.reduce(getattr, rest, self._namespace[first])


class _Bounded(io.BytesIO):
    def __init__(self, most: int | None) -> None:
        super().__init__()
        self._most = most

    def write(self, data: Any) -> int:
        count = super().write(data)
        if self._most is not None and self.tell() > self._most:
            raise TooLarge(self.tell())
        return count


class _Nowhere(io.BytesIO):
    def write(self, data: Any) -> int:
        return len(data)


def _of_libraries() -> list[type]:
    """Return types of numpy and torch whose objects stand for their content, if the libraries are imported."""
    modules = {name: sys.modules.get(name) for name in _KINDS}
    found = [getattr(modules[name], kind, None) for name, kinds in _KINDS.items() for kind in kinds]
    return [each for each in found if each is not None]
