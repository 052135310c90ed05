"""Pickle all objects of a program together, so that references shared between them are preserved.

Each object is identified by its path: the variable and attributes that lead to it. On restart its saved state is
written into the object at the same path, so that hooks, closures and libraries keep valid references. The bytes of
tensors and arrays are stored separately, by digest. Data that is unchanged since the program's setup, which is all code
before its first training loop, is not stored but referred to by path and digest.
"""

from __future__ import annotations

import copyreg
import functools
import importlib
import io
import pickle
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from types import CellType, FunctionType, GeneratorType, MappingProxyType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset, Sampler

from kernel_backend.runner.forms.script.frames import is_made
from kernel_backend.runner.forms.script.state import arrays, reading
from kernel_backend.runner.forms.script.state.attributes import held_by, is_importable, is_plain_attribute, slots_of
from kernel_backend.runner.forms.script.state.blobs import Blobs, bytes_of, digest
from kernel_backend.runner.forms.script.state.paths import Live, Path, told
from kernel_backend.runner.forms.script.state.setup_data import SetupData, Versions, is_of_module
from kernel_backend.runner.forms.script.state.tombstones import Tombstone, told_of
from kernel_backend.runner.forms.script.state.values import ATOMS, content_digest, is_data, large_tree, tree_of

_MAPPINGS = frozenset({dict, OrderedDict, defaultdict, Counter})
_CONTAINERS = _MAPPINGS | {list, tuple, set, frozenset, deque}
_MANY = 256  # longer lists of plain values are pickled as one object
_LARGE = 1024  # bytes; smaller tensors are always stored
_COUNTED = 2**20  # bytes; smaller tensors are always digested
# Library classes whose instances are restored in place, like those of the user's classes.
_FILLED = (nn.Module, torch.optim.Optimizer, LRScheduler, GradScaler, Dataset, Sampler, DataLoader)
_BUILT_IN = (list, tuple, dict, set, frozenset, str, int, float, bytes, BaseException, type, deque)

Reduced = Any  # the result of `reducer_override`
Reducer = Callable[["GraphWriter", Any, "Path | None"], Reduced]
REDUCERS: dict[type, Reducer] = {}  # reducers of other exact classes, registered by other modules


class GraphWriter(pickle.Pickler):
    """Pickler of all objects of a program; the bytes of tensors and arrays are stored apart, by digest."""

    def __init__(
        self,
        namespaces: Mapping[str, Mapping[str, Any]],
        setup: SetupData | None = None,
        versions: Versions | None = None,
        trial: bool = False,
        held: Mapping[int, Any] = MappingProxyType({}),
    ) -> None:
        """Set up the pickler for one program.

        `namespaces` are those of the program's modules, whose functions and classes are the user's. `setup` has the
        digests of the data that existed before the first training loop; None to record them. `versions` caches digests
        of tensors. A `trial` only checks whether objects can be pickled. `held` has, by `id()`, what running functions
        of libraries hold: a restart writes into these objects, too.
        """
        self._of_frames = dict.fromkeys(held, True)  # False for what these objects hold
        self.copied: list[str] = []  # names of such objects into which it cannot write
        self._buffer = io.BytesIO()
        super().__init__(self._buffer, protocol=5)
        self.blobs: Blobs = {}
        self.data = SetupData()  # as it is now
        self._namespaces, self._trial = namespaces, trial
        self._surveys, self._setup = setup is None and not trial, setup or SetupData()
        self._versions = versions or Versions(counted=False)
        self._same: dict[int, tuple[Path, str]] = {}  # unchanged containers by `id()`: digest, or "" within another
        self._globals = {id(each): name for name, each in namespaces.items()}
        self._paths: dict[int, Path] = {}
        self._inner: dict[int, Path] = {}  # within objects that are not restored in place, but made anew
        self._held: list[Any] = []  # keeps objects alive, so that ids stay unique
        self._writable: dict[int, Any] = {}  # library's objects by `id()` that a trial has shown to be picklable
        self._numbers: dict[int, int] = {}  # numbers of containers, by `id()`
        self._storages: dict[tuple[str, int], int] = {}
        self._contents: list[tuple[CellType | int, Any]] = []

    def write(self, roots: Mapping[Any, Mapping[str, Any]], more: Mapping[str, Any]) -> bytes:
        """Return the pickle of all variables in the namespaces `roots`, and of the values `more`.

        Raises any error of pickling.
        """
        for key, names in roots.items():
            for name, value in names.items():
                self._at(value, (key, "root", name))
        self._compare_trees(Live(roots))
        self.dump({"roots": roots, **more})
        done = 0
        while True:  # contents of containers and closures, which may contain others
            batch, done = self._contents[done:], len(self._contents)
            self.dump(batch)
            if not batch:
                return self._buffer.getvalue()

    # Called by pickle

    def persistent_id(self, obj: Any) -> Any:
        """Return the identifier under which a container is pickled; None for other objects, which are pickled as usual.

        The container's items are pickled after all else.
        """
        kind = type(obj)
        if kind in ATOMS or kind not in _CONTAINERS:
            return None
        path = self._paths.get(id(obj))
        if path is None:
            self._within(obj, self._inner.get(id(obj)))
            return None
        if id(obj) in self._same or (self._surveys and self._is_large_tree(obj, path)):
            return -1, *self._same[id(obj)], None
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
        """Return how to pickle an object that is no plain value, in the form that `__reduce__` returns."""
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
            return self._module(obj, path)
        if kind is CellType:
            return self._cell(obj, path)
        if kind is MethodType:
            self._at(obj.__self__, (path, "__self__", None)) if path else None
            return NotImplemented
        if isinstance(obj, Tensor):
            return self._tensor(obj, path)
        if arrays.is_array(obj):
            return self._array(obj, path)
        if kind is torch.Generator:
            return reading.generator, (path, str(obj.device)), obj.get_state(), None, None, reading.fill_generator
        if self._is_filled(obj):
            return self._instance(obj, path)
        if isinstance(obj, dict) and self._is_of_user(kind):
            self._within(obj, path or self._inner.get(id(obj)))
            items = (obj.__dict__, getattr(obj, "default_factory", None))
            return reading.bare, (kind,), items, None, iter(obj.items()), reading.fill_bare
        return self._of_library(obj, path)

    # Reductions by kind of object

    def live(self, obj: Any, path: Path | None) -> Reduced:
        """Return how to pickle an object without its state: a restart uses the object that it finds at the same path.

        `path` leads to the object by variables and attributes.
        """
        if self._trial and path is None:
            raise pickle.PicklingError(f"a {type(obj).__name__} cannot be saved")
        return reading.live, (path, type(obj).__name__)

    def at(self, obj: Any, path: Path | None, attribute: str) -> Any:
        """Record that an object is reached by an attribute of the object at `path`; return the object."""
        if path is not None:
            self._at(obj, (path, "attribute", attribute))
        return obj

    def _at(self, obj: Any, path: Path) -> None:
        if type(obj) not in ATOMS and id(obj) not in self._paths:
            self._paths[id(obj)] = path
            self._held.append(obj)

    def _within(self, obj: Any, path: Path | None) -> None:
        """Record the paths of what `obj` holds, if `obj`, which is at `path`, is created anew by a restart.

        By these paths, data that is unchanged since the program's setup can be referred to.
        """
        for how, key, value in held_by(obj) if path is not None else ():
            if type(value) not in ATOMS and id(value) not in self._inner:
                self._inner[id(value)] = (path, how, key)
                self._held.append(value)

    def _is_large_tree(self, obj: Any, path: Path) -> bool:
        """Return True if `obj` is a large container of plain values, and record its digest; else return False."""
        tree = large_tree(obj, path)
        if tree is not None:
            self.data.trees[path] = content_digest(obj)
            self._same[id(obj)] = path, self.data.trees[path]
        return tree is not None

    def _compare_trees(self, live: Live) -> None:
        """Find the large containers of plain values that are unchanged since the program's setup, to refer to them."""
        for path, content in self._setup.trees.items():
            found = live.at(path)
            tree = tree_of(found, path) if type(found) in _CONTAINERS else None
            if tree is not None and content_digest(found) == content:
                # Names may refer to a list within: it must stay the same object.
                self._same |= {each: (inner, "") for each, inner in tree.paths.items()}
                self._same[id(found)] = path, content

    def _function(self, obj: FunctionType, path: Path | None) -> Reduced:
        module = self._globals.get(id(obj.__globals__))
        if module is None:
            return self.live(obj, path) if not is_importable(obj) else NotImplemented
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

    def _module(self, obj: ModuleType, path: Path | None) -> Reduced:
        if not is_made(obj):
            return importlib.import_module, (obj.__name__,)
        for name, value in vars(obj).items():
            self.at(value, path, name)
        return reading.made_module, (path,), (dict(vars(obj)), {}), None, None, reading.fill

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
            return self.live(obj, path) if not is_importable(obj) else NotImplemented
        state = {name: value for name, value in vars(obj).items() if is_plain_attribute(name, value)}
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
        if path is not None:  # its class may have been made at run time, as by torch's parametrizations
            self._at(type(obj), (path, "__class__", None))
        slots = {name: getattr(obj, name) for name in slots_of(type(obj)) if hasattr(obj, name)}
        return reading.new, (path, type(obj)), (state, slots), None, None, reading.fill

    def _tensor(self, obj: Tensor, path: Path | None) -> Reduced:
        if obj.layout is not torch.strided or obj.is_quantized or obj.device.type == "meta" or is_lazy(obj):
            return NotImplemented
        data = obj.detach()
        cut = obj.grad_fn is not None
        storage = self._storage(obj, path or self._inner.get(id(obj)))
        if path is None and storage[3]:
            path = self._inner.get(id(obj))
        made = (path, type(obj), obj.dtype, tuple(data.shape), data.stride(), data.storage_offset(), str(obj.device))
        state: dict[str, Any] = dict(obj.__dict__)
        for name, value in state.items():
            self.at(value, path, name)
        if obj.is_leaf and obj.grad is not None:
            state["grad"] = obj.grad
            if path is not None:
                self._at(obj.grad, (path, "grad", None))
        reduced = (reading.tensor, (*made, storage, obj.requires_grad, cut))
        return (*reduced, state, None, None, reading.fill_tensor)

    def _storage(self, obj: Tensor, path: Path | None) -> tuple[int, int, str | None, bool]:
        """Return a tensor's storage as its number, size and digest, and True if the program's setup creates its bytes.

        The digest is None if the storage was pickled before or is empty.
        """
        storage = obj.untyped_storage()
        if not storage.nbytes():
            return -1, 0, None, False
        place = (str(obj.device), storage.data_ptr())
        number = self._storages.get(place)
        if number is not None:
            return number, storage.nbytes(), None, False
        number = self._storages[place] = len(self._storages)
        self._held.append(obj)
        known = self._versions.digest(obj)
        data = bytes_of(obj.detach())
        found, same = self._blob(data, path, known)
        # A module's or optimizer's tensors change in any case, and libraries write to them past the counter.
        if known is None and same and data.numel() >= _COUNTED and id(obj) in self._paths and not is_of_module(path):
            self._versions.put(obj, found)
        return number, storage.nbytes(), found, same

    def _array(self, obj: Any, path: Path | None) -> Reduced:
        mapping = None if self._trial else arrays.mapping(obj)
        if mapping is not None:
            return arrays.mapped, mapping
        if obj.dtype.hasobject or obj.nbytes < _LARGE:
            return NotImplemented
        path = path or self._inner.get(id(obj))
        data, order = arrays.memory(obj)
        laid = (obj.dtype, obj.shape, order)
        content, same = self._blob(data, path, laid=laid)
        return (reading.unchanged, (path, content, *laid)) if same else (reading.array, (content, *laid))

    def _blob(self, data: Tensor, path: Path | None, known: str | None = None, laid: Any = None) -> tuple[str, bool]:
        """Store bytes, unless the program's setup creates equal ones at this path, and return their digest.

        Return also True if the setup creates them. `known` is their digest if it is known already. `laid` says how the
        bytes lie in an array.
        """
        if self._trial:
            return "", False
        found = known or digest(data)
        if path is not None:
            self.data.digests[path] = whole = found if laid is None else f"{found} {laid}"
            if data.numel() >= _LARGE and self._setup.digests.get(path) == whole:
                return found, True
        self.blobs[found] = data
        return found, False

    def _data(self, obj: Any, path: Path) -> Reduced | None:
        """Return how to pickle a data frame or image by its path alone; None if it has changed since the setup.

        The setup is the program's code before its first training loop.
        """
        content = self.data.digests[path] = content_digest(obj)
        return (reading.same_value, (path, content)) if self._setup.digests.get(path) == content else None

    def _of_library(self, obj: Any, path: Path | None) -> Reduced:
        kind = type(obj)
        if isinstance(obj, GeneratorType):
            return self.live(obj, path) if self._trial else (reading.tombstone, (told(path), "generator"))
        if kind.__module__ == "multiprocessing.connection":  # can be pickled, but its file is of this process alone
            return self.live(obj, path)
        place = path or self._inner.get(id(obj))
        if place is not None and not self._trial and is_data(obj):
            return self._data(obj, place) or NotImplemented
        self._within(obj, place)
        if self._trial:
            self._writable[id(obj)] = obj  # if the whole trial succeeds
        if place is not None and id(obj) in self._of_frames and not isinstance(obj, _BUILT_IN) and self._can_write(obj):
            return self._in_place(obj, place)
        if self._trial or kind in _SAVED or isinstance(obj, _BUILT_IN):  # a container must always be saved
            return NotImplemented
        if not self._can_write(obj):
            # The setup makes iterators of Python anew, but at their beginning.
            anew = isinstance(obj, Iterator) and kind.__module__ in ("builtins", "itertools")
            return (reading.tombstone, (told(path), kind.__name__)) if anew else self.live(obj, path)
        if kind.__module__ in ("builtins", "collections", "random", "datetime", "pathlib", "numpy", "argparse"):
            _SAVED.add(kind)
        return NotImplemented

    def _in_place(self, obj: Any, path: Path) -> Reduced:
        """Return how to pickle a library's object so that a restart writes its state into the object at the same path.

        That is possible if its class is reduced as plain Python classes are. Another object is copied; that is noted,
        unless it is equal by its value, as those that never change are.
        """
        made, arguments, state, *items = (*obj.__reduce_ex__(4), None, None, None)[:5]
        if made is copyreg.__newobj__ and arguments == (type(obj),) and items == [None, None]:  # type: ignore[attr-defined]
            for name, value in state.items() if isinstance(state, dict) else ():
                self.at(value, path, name)
                self._of_frames.setdefault(id(value), False)
            return reading.shared, (path, type(obj)), state, None, None, reading.fill_shared
        changes = type(obj).__hash__ in (None, object.__hash__)  # type: ignore[comparison-overlap]
        if changes and self._of_frames[id(obj)]:
            self.copied.append(told(path))
        return NotImplemented

    def _can_write(self, obj: Any) -> bool:
        """Return True if a library's object can be pickled with all objects that it holds.

        The object is pickled to find that out. A positive answer is cached for the objects that it holds as well:
        otherwise each of the thousand objects of a plot, which refer to each other, would be pickled for an answer.
        """
        if id(obj) in self._writable:
            return True
        trial = GraphWriter(self._namespaces, trial=True)
        try:
            trial.dump(obj)
        except Exception:  # any error of a user's class
            return False
        self._writable |= trial._writable
        return True


_SAVED: set[type] = {functools.partial, random.Random}  # instances can always be pickled as a whole


def _contents(obj: Any) -> Any:
    """Return the items of a container in the form in which they are pickled.

    Of a long list of plain values, this is a pickle of its own.
    """
    if isinstance(obj, dict):
        return tuple(obj.items()), getattr(obj, "default_factory", None)
    if type(obj) is list and len(obj) > _MANY and set(map(type, obj)) <= ATOMS:
        return pickle.dumps(obj, protocol=5)
    return tuple(obj)


def _list_items(writer: GraphWriter, items: Any, path: Path | None) -> Reduced:
    """Return how to pickle a list's iterator, as from `__reduce__`; its position is set after the list was filled.

    `path` leads to the iterator.
    """
    made, arguments, *position = items.__reduce__()
    if not position:  # the iterator is exhausted
        return made, arguments
    return reading.list_items, (made, *arguments), position[0], None, None, reading.fill_list_items


REDUCERS |= {type(iter([0])): _list_items, type(reversed([0])): _list_items}
