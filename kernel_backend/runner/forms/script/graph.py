"""Pickle all objects of a program together, so that references shared between them are preserved.

Objects are identified by the path of variables and attributes that leads to them. On restart their state is written
into the objects at the same paths, so that hooks, closures and libraries keep valid references. The bytes of tensors
and arrays are stored separately, by digest; those unchanged since the program's setup are stored as a digest only.
"""

from __future__ import annotations

import functools
import importlib
import io
import pickle
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from types import CellType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset, Sampler

from kernel_backend.runner.forms.script import reading
from kernel_backend.runner.forms.script.blobs import Blobs, bytes_of, digest, from_bytes
from kernel_backend.runner.forms.script.paths import Path, told
from kernel_backend.runner.forms.script.tombstones import Tombstone, told_of

try:
    import numpy as np
except ImportError:  # torch runs without it
    np = None  # type: ignore[assignment]

ATOMS = frozenset({int, float, str, bytes, bool, complex, type(None), type(...), type(NotImplemented), range, slice})
_MAPPINGS = frozenset({dict, OrderedDict, defaultdict, Counter})
_CONTAINERS = _MAPPINGS | {list, tuple, set, frozenset, deque}
_MANY = 256  # longer lists of plain values are pickled as one object
_LARGE = 1024  # bytes; smaller tensors are always stored
# Library classes whose instances are restored in place, like those of the user's classes.
_FILLED = (nn.Module, torch.optim.Optimizer, LRScheduler, GradScaler, Dataset, Sampler, DataLoader)
_BUILT_IN = (list, tuple, dict, set, frozenset, str, int, float, bytes, BaseException, type, deque)

Reduced = Any  # the result of `reducer_override`
Reducer = Callable[["GraphWriter", Any, "Path | None"], Reduced]
REDUCERS: dict[type, Reducer] = {}  # reducers of other exact classes, registered by other modules


class GraphWriter(pickle.Pickler):
    """Pickler of a program's objects; identical bytes of tensors and arrays are stored once, by digest."""

    def __init__(
        self, namespaces: Mapping[str, Mapping[str, Any]], unchanged: Mapping[Path, str], trial: bool = False
    ) -> None:
        """Set up the pickler for one program.

        `namespaces` are those of the program's modules, whose functions and classes are the user's. `unchanged` holds
        the digests of tensors and arrays after the program's setup. A `trial` only checks whether objects can be
        pickled.
        """
        self._buffer = io.BytesIO()
        super().__init__(self._buffer, protocol=5)
        self.blobs: Blobs = {}
        self.digests: dict[Path, str] = {}  # of all tensors and arrays
        self._namespaces, self._unchanged, self._trial = namespaces, unchanged, trial
        self._globals = {id(each): name for name, each in namespaces.items()}
        self._paths: dict[int, Path] = {}
        self._held: list[Any] = []  # keeps objects alive, so that ids stay unique
        self._numbers: dict[int, int] = {}  # numbers of containers, by `id()`
        self._storages: dict[tuple[str, int], int] = {}
        self._contents: list[tuple[CellType | int, Any]] = []

    def write(self, roots: Mapping[Any, Mapping[str, Any]], more: Mapping[str, Any]) -> bytes:
        """Return the pickle of these namespaces (`roots`, by key) and of `more` values; raise any error of pickling."""
        for key, names in roots.items():
            for name, value in names.items():
                self._at(value, (key, "root", name))
        self.dump({"roots": roots, **more})
        done = 0
        while True:  # contents of containers and closures, which may contain others
            batch, done = self._contents[done:], len(self._contents)
            self.dump(batch)
            if not batch:
                return self._buffer.getvalue()

    # Called by pickle

    def persistent_id(self, obj: Any) -> Any:
        """Return an identifier for a container, whose contents are written separately; None for other objects."""
        kind = type(obj)
        if kind in ATOMS or kind not in _CONTAINERS:
            return None
        path = self._paths.get(id(obj))
        if path is None:
            return None
        number = self._numbers.get(id(obj))
        if number is None:
            if kind not in (set, frozenset):
                for key, value in obj.items() if kind in _MAPPINGS else enumerate(obj):
                    if type(value) not in ATOMS and type(key) in ATOMS:
                        self._at(value, (path, "item", key))
            if kind in (tuple, frozenset):
                return None
            number = self._numbers[id(obj)] = len(self._numbers)
            self._contents.append((number, _contents(obj)))
        return number, path, kind.__name__, getattr(obj, "maxlen", None)

    def reducer_override(self, obj: Any) -> Reduced:
        """Return the reduction, as of `__reduce__`, of an object that is not a plain value."""
        kind = type(obj)
        path = self._paths.get(id(obj))
        special = REDUCERS.get(kind)
        if special is not None:
            return special(self, obj, path)
        if kind is Tombstone:
            return reading.tombstone, told_of(obj)
        if kind is FunctionType:
            return self._function(obj, path)
        if isinstance(obj, type):
            return self._class(obj, path)
        if kind is ModuleType:
            return importlib.import_module, (obj.__name__,)
        if kind is CellType:
            return self._cell(obj, path)
        if kind is MethodType:
            self._at(obj.__self__, (path, "__self__", None)) if path else None
            return NotImplemented
        if isinstance(obj, Tensor):
            return self._tensor(obj, path)
        if np is not None and kind is np.ndarray:
            return self._array(obj, path)
        if kind is torch.Generator:
            return reading.generator, (path, str(obj.device)), obj.get_state(), None, None, reading.fill_generator
        if self._is_filled(obj):
            return self._instance(obj, path)
        if isinstance(obj, dict) and self._is_of_user(kind):
            items = (obj.__dict__, getattr(obj, "default_factory", None))
            return reading.bare, (kind,), items, None, iter(obj.items()), reading.fill_bare
        return self._of_library(obj, path)

    # Reductions by kind of object

    def live(self, obj: Any, path: Path | None) -> Reduced:
        """Return a pickle reduction that stores only the object's path, and finds the object there on restart."""
        if self._trial and path is None:
            raise pickle.PicklingError(f"a {type(obj).__name__} cannot be saved")
        return reading.live, (path, type(obj).__name__)

    def at(self, obj: Any, path: Path | None, attribute: str) -> Any:
        """Register an object as an attribute of the object at `path`, and return it."""
        if path is not None:
            self._at(obj, (path, "attribute", attribute))
        return obj

    def _at(self, obj: Any, path: Path) -> None:
        if type(obj) not in ATOMS and id(obj) not in self._paths:
            self._paths[id(obj)] = path
            self._held.append(obj)

    def _function(self, obj: FunctionType, path: Path | None) -> Reduced:
        module = self._globals.get(id(obj.__globals__))
        if module is None:
            return self.live(obj, path) if not _is_importable(obj) else NotImplemented
        cells = obj.__closure__ or ()
        if path is not None:
            for name, cell in zip(obj.__code__.co_freevars, cells, strict=True):
                self._at(cell, (path, "closure", name))
            for attribute in ("__defaults__", "__kwdefaults__"):
                self._at(getattr(obj, attribute), (path, attribute, None))
        code = obj.__code__
        made = (path, module, code.co_qualname, code.co_firstlineno, cells)
        state = (obj.__defaults__, obj.__kwdefaults__, obj.__dict__)
        return reading.function, made, state, None, None, reading.fill_function

    def _cell(self, obj: CellType, path: Path | None) -> Reduced:
        try:
            contents = obj.cell_contents
        except ValueError:  # an empty closure cell
            return reading.cell, (path,)
        if path is not None:
            self._at(contents, (path, "content", None))
        self._contents.append((obj, contents))
        return reading.cell, (path,)

    def _class(self, obj: type, path: Path | None) -> Reduced:
        if obj.__module__ not in self._namespaces:
            return self.live(obj, path) if not _is_importable(obj) else NotImplemented
        state = {name: value for name, value in vars(obj).items() if _is_plain_attribute(name, value)}
        made = (path, obj.__module__, obj.__qualname__)
        return (
            (reading.user_class, made, state, None, None, reading.fill_class) if state else (reading.user_class, made)
        )

    def _is_filled(self, obj: Any) -> bool:
        kind = type(obj)
        if isinstance(obj, _BUILT_IN) or not hasattr(obj, "__dict__"):
            return False
        if isinstance(obj, _FILLED) or kind.__module__ in reading.ITERATORS:
            return True
        plain = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__  # type: ignore[comparison-overlap]
        return plain and self._is_of_user(kind)

    def _is_of_user(self, kind: type) -> bool:
        return any(each.__module__ in self._namespaces for each in kind.__mro__)

    def _instance(self, obj: Any, path: Path | None) -> Reduced:
        state = dict(obj.__dict__)
        for name, value in state.items():
            self.at(value, path, name)
        slots = {name: getattr(obj, name) for name in _slots(type(obj)) if hasattr(obj, name)}
        return reading.new, (path, type(obj)), (state, slots), None, None, reading.fill

    def _tensor(self, obj: Tensor, path: Path | None) -> Reduced:
        if obj.layout is not torch.strided or obj.is_quantized or obj.device.type == "meta":
            return NotImplemented
        data = obj.detach()
        cut = obj.grad_fn is not None
        made = (path, type(obj), obj.dtype, tuple(data.shape), data.stride(), data.storage_offset(), str(obj.device))
        state: dict[str, Any] = dict(obj.__dict__)
        for name, value in state.items():
            self.at(value, path, name)
        if obj.is_leaf and obj.grad is not None:
            state["grad"] = obj.grad
            if path is not None:
                self._at(obj.grad, (path, "grad", None))
        reduced = (reading.tensor, (*made, self._storage(data, path), obj.requires_grad, cut))
        return (*reduced, state, None, None, reading.fill_tensor)

    def _storage(self, data: Tensor, path: Path | None) -> tuple[int, int, str | None, bool]:
        """Return number and size of a tensor's storage; when first used, its digest and if the setup creates it."""
        storage = data.untyped_storage()
        if not storage.nbytes():
            return -1, 0, None, False
        place = (str(data.device), storage.data_ptr())
        number = self._storages.get(place)
        if number is not None:
            return number, storage.nbytes(), None, False
        number = self._storages[place] = len(self._storages)
        self._held.append(data)
        return (number, storage.nbytes(), *self._blob(bytes_of(data), path))

    def _array(self, obj: Any, path: Path | None) -> Reduced:
        if obj.dtype.hasobject or obj.nbytes < _LARGE:
            return NotImplemented
        content, same = self._blob(from_bytes(obj.tobytes()), path)
        if same:
            return reading.unchanged, (path, content)
        order = "F" if obj.flags.f_contiguous and not obj.flags.c_contiguous else "C"
        return reading.array, (content, obj.dtype, obj.shape, order)

    def _blob(self, data: Tensor, path: Path | None) -> tuple[str, bool]:
        """Return the digest of some bytes, and True if the program's setup creates equal ones; else store them."""
        if self._trial:
            return "", False
        found = digest(data)
        if path is not None:
            self.digests[path] = found
            if data.numel() >= _LARGE and self._unchanged.get(path) == found:
                return found, True
        self.blobs[found] = data
        return found, False

    def _of_library(self, obj: Any, path: Path | None) -> Reduced:
        if isinstance(obj, GeneratorType):
            return self.live(obj, path) if self._trial else (reading.tombstone, (told(path), "generator"))
        kind = type(obj)
        if self._trial or kind in _SAVED or isinstance(obj, _BUILT_IN):  # a container must always be saved
            return NotImplemented
        if not self._can_write(obj):
            return self.live(obj, path)
        if kind.__module__ in ("builtins", "collections", "random", "datetime", "pathlib", "numpy", "argparse"):
            _SAVED.add(kind)
        return NotImplemented

    def _can_write(self, obj: Any) -> bool:
        try:
            GraphWriter(self._namespaces, {}, trial=True).dump(obj)
        except Exception:  # any error of a user's class
            return False
        return True


_SAVED: set[type] = {functools.partial, random.Random}  # instances can always be pickled as a whole


def _contents(obj: Any) -> Any:
    """Return the contents of a container; a long list of plain values as a pickle of its own."""
    if isinstance(obj, dict):
        return tuple(obj.items()), getattr(obj, "default_factory", None)
    if type(obj) is list and len(obj) > _MANY and set(map(type, obj)) <= ATOMS:
        return pickle.dumps(obj, protocol=5)
    return tuple(obj)


def _list_items(writer: GraphWriter, items: Any, path: Path | None) -> Reduced:
    """Return the pickle reduction of a list iterator, whose position is set after the list is filled."""
    made, arguments, *position = items.__reduce__()
    if not position:  # the iterator is exhausted
        return made, arguments
    return reading.list_items, (made, *arguments), position[0], None, None, reading.fill_list_items


REDUCERS |= {type(iter([0])): _list_items, type(reversed([0])): _list_items}


def _is_importable(obj: Any) -> bool:
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", "")
    try:
        found: Any = importlib.import_module(module) if module else None
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return False
    return found is obj


def _is_plain_attribute(name: str, value: Any) -> bool:
    if name.startswith("__") or hasattr(type(value), "__get__"):
        return False
    return not isinstance(value, classmethod | staticmethod | property | FunctionType)


def _slots(kind: type) -> list[str]:
    found: list[str] = []
    for each in kind.__mro__:
        slots = vars(each).get("__slots__", ())
        found += [slots] if isinstance(slots, str) else list(slots)
    return [each for each in found if each not in ("__dict__", "__weakref__")]
