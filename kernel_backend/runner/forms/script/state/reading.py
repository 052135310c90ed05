"""Unpickle a program's state into the objects that the restarted program has itself created.

Objects are found by path: the variable and attributes that lead to them. Pickles refer to the functions below, which
act on the current reader. Existing objects are changed only by `apply`, so that a pickle that cannot be read leaves the
program unchanged.
"""

from __future__ import annotations

import copyreg
import importlib
import io
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from kernel_backend.runner.forms.script.state import arrays
from kernel_backend.runner.forms.script.state.blobs import bytes_of, digest
from kernel_backend.runner.forms.script.state.paths import NOTHING, Live, Path, told
from kernel_backend.runner.forms.script.state.tensors import Cut, as_kind
from kernel_backend.runner.forms.script.state.tombstones import NotSaved, Tombstone
from kernel_backend.runner.forms.script.state.values import content_digest

# Classes whose instances are pickled like those of the user's classes.
ITERATORS = frozenset(f"kernel_backend.runner.forms.script.{name}" for name in ("iterators", "open_files"))
CONTAINERS: dict[str, type] = {
    each.__name__: each for each in (list, dict, set, deque, OrderedDict, defaultdict, Counter)
}
_reader: list[GraphReader] = []


class GraphReader(pickle.Unpickler):
    """Unpickler of a program's saved state, which is written into objects that the restarted program has created."""

    def __init__(
        self,
        data: bytes,
        blobs: Mapping[str, Tensor],
        live: Live,
        namespaces: dict[str, dict[str, Any]],
        codes: Callable[[str, str, int], CodeType | None],
    ) -> None:
        """Set up the reader of the pickle `data`.

        `blobs` has the bytes of tensors and arrays by digest. `live` finds the program's objects, and `namespaces` are
        those of its modules. `codes` returns a function's code, given its module, qualified name and first line.
        """
        super().__init__(io.BytesIO(data))
        self.blobs, self._live, self._namespaces, self._codes = blobs, live, namespaces, codes
        self._adopted: set[int] = set()
        self._containers: dict[int, Any] = {}
        self._made: set[int] = set()  # `id()` of new containers
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._contents: dict[int, str] = {}  # digests of storages by number
        self._fills: list[Callable[[], None]] = []
        self.late: list[Callable[[], None]] = []  # called once all objects have their state
        self.tombstones: list[str] = []

    def read(self) -> dict[str, Any]:
        """Unpickle the state, and return the values that were saved with it.

        Objects that the program has created already get their state only when `apply` is called.
        """
        _reader.append(self)
        try:
            found: dict[str, Any] = self.load()
            while batch := self.load():
                for holder, contents in batch:
                    if isinstance(holder, int):
                        self._contain(holder, contents)
                    else:
                        self._fills.append(_setter(holder, "cell_contents", contents))
            return found
        finally:
            _reader.pop()

    def apply(self) -> None:
        """Write the saved state into the program's objects.

        If generators or samplers must be run forward, the state is written again afterwards, as they change other
        objects.
        """
        self._fill()
        for each in self.late:
            each()
        if self.late:
            self._fill()

    def _fill(self) -> None:
        with torch.no_grad():
            for each in self._fills:
                each()

    def persistent_load(self, pid: tuple[int, Path | None, str, int | None]) -> Any:
        """Return the container that `pid` identifies: the program's own one at a path, or an empty one to fill later.

        `pid` has its number in the pickle, its path, its type's name and its `maxlen`. The number -1 marks a container
        that the program's setup creates; then its digest, or "" for a part of another container, replaces the name.
        """
        number, path, name, most = pid
        if number < 0:
            return same_value(path, name) if path is not None and name else self.look(path)
        if number not in self._containers:
            kind = CONTAINERS[name]
            found = self.adopt(path, kind)
            if found is NOTHING:
                found = deque(maxlen=most) if kind is deque else kind()
                self._made.add(number)
            self._containers[number] = found
        return self._containers[number]

    def _contain(self, number: int, contents: Any) -> None:
        """Fill a container, given by its number in the pickle: at once if it is new, else when `apply` is called."""
        held = self._containers[number]

        def now() -> None:
            held.clear()
            if isinstance(held, dict):
                items, factory = contents
                held.update(items)
                if isinstance(held, defaultdict):
                    held.default_factory = factory
            elif isinstance(held, set):
                held.update(contents)
            else:
                held.extend(pickle.loads(contents) if isinstance(contents, bytes) else contents)

        if number in self._made:
            now()
        else:
            self.later(now)

    def adopt(self, path: Path | None, kind: type) -> Any:
        """Return the program's object at a path if its class is `kind` and it was not returned before, else NOTHING."""
        found = self._live.at(path)
        if found is NOTHING or type(found) is not kind or id(found) in self._adopted:
            return NOTHING
        self._adopted.add(id(found))
        return found

    def later(self, fill: Callable[[], None]) -> None:
        """Register `fill`, which writes the state of one object, to be called by `apply`."""
        self._fills.append(fill)

    def look(self, path: Path | None) -> Any:
        """Return the program's object to which a path leads; NOTHING if there is none."""
        return self._live.at(path)

    def stone(self, path: Path | None, kind: str) -> Tombstone:
        """Return a placeholder for an object that was not saved, and record the object's name for the user."""
        self.tombstones.append(f"{told(path)} (a {kind})")
        return Tombstone(told(path), kind)

    def module(self, name: str) -> dict[str, Any]:
        """Return the namespace of the program's module with this name, which the program may import in its loops."""
        if name not in self._namespaces:
            self._namespaces[name] = vars(importlib.import_module(name))
        return self._namespaces[name]

    def code(self, module: str, qualname: str, line: int) -> CodeType | None:
        """Return the code object of a function; None if the program has none with this name and line."""
        return self._codes(module, qualname, line)

    def storage(
        self, number: int, size: int, content: str | None, same: bool, path: Path | None, found: Any, device: str
    ) -> tuple[torch.UntypedStorage, bool]:
        """Return the storage with this number in the pickle, and True if it is the storage of the tensor `found`.

        `found` is the program's tensor at `path`. Its storage is used if it has the right size and device, and is
        filled when `apply` is called; else a new one is made. `content` is the digest of the saved bytes. `same` means
        that the program's setup creates these bytes: NotSaved is raised if it has created others.
        """
        own = found.untyped_storage() if isinstance(found, Tensor) and found.layout is torch.strided else None
        known = self._storages.get(number)
        if known is not None:
            return known, own is not None and own.data_ptr() == known.data_ptr()
        assert content is not None
        self._contents[number] = content
        fits = own is not None and own.nbytes() == size and str(found.device) == device
        if same:
            if not fits or digest(bytes_of(found.detach())) != content:
                raise _differs(path)
            assert own is not None
            self._storages[number] = own
            return own, True
        if fits and own is not None and not any(each.data_ptr() == own.data_ptr() for each in self._storages.values()):
            target = torch.empty(0, dtype=torch.uint8, device=device).set_(own, 0, (size,))  # type: ignore[call-overload]
            self.later(lambda: target.copy_(self.blobs[content]))
            self._storages[number] = own
            return own, True
        made = torch.empty(size, dtype=torch.uint8, device=device).copy_(self.blobs[content])
        self._storages[number] = made.untyped_storage()
        return self._storages[number], False

    def copied(self, number: int, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        """Return a new storage with the saved bytes of `storage`, which `apply` may not have filled yet."""
        saved = self.blobs.get(self._contents[number])
        if saved is None:  # the program's setup creates it
            saved = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        return saved.to(storage.device).clone().untyped_storage()


def _differs(path: Path | None) -> NotSaved:
    return NotSaved(f"{told(path)} was made with other contents after the restart")


def _setter(owner: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(owner, name, value)


# Called from pickles


def live(path: Path | None, kind: str) -> Any:
    """Return the program's object of class name `kind` at a path; a placeholder that raises errors if there is none."""
    reader = _reader[-1]
    found = reader.look(path)
    return found if found is not NOTHING and type(found).__name__ == kind else reader.stone(path, kind)


def late(action: Callable[[], None]) -> None:
    """Register `action` to be called once the state of all objects has been restored."""
    _reader[-1].late.append(action)


def tombstone(name: str, kind: str) -> Tombstone:
    """Return a placeholder for an object that was not saved, and record the object's name for the user."""
    _reader[-1].tombstones.append(f"{name} (a {kind})")
    return Tombstone(name, kind)


def new(path: Path | None, kind: type) -> Any:
    """Return the program's instance of class `kind` at a path; if there is none, a new one without attributes."""
    found = _reader[-1].adopt(path, kind)
    return object.__new__(kind) if found is NOTHING else found


def shared(path: Path | None, kind: type) -> Any:
    """Return the library's object of class `kind` at a path, which functions of the library hold, or a new one."""
    found = _reader[-1].adopt(path, kind)
    return copyreg.__newobj__(kind) if found is NOTHING else found  # type: ignore[attr-defined]


def fill_shared(owner: Any, state: Any) -> None:
    """Register that `apply` gives a library's object its state, in the way of its class."""

    def now() -> None:
        if hasattr(owner, "__setstate__"):
            owner.__setstate__(state)
            return
        attributes, slots = state if isinstance(state, tuple) else (state, None)
        if attributes is not None:
            owner.__dict__.clear()
            owner.__dict__.update(attributes)
        for name, value in (slots or {}).items():
            setattr(owner, name, value)

    _reader[-1].later(now)


def made_module(path: Path | None) -> ModuleType:
    """Return the program's module at a path, made by `types.ModuleType`; if there is none, a new empty one."""
    found = _reader[-1].adopt(path, ModuleType)
    return ModuleType("") if found is NOTHING else found


def forward(path: Path | None, kind: type, only_live: bool) -> Any:
    """Return the program's generator at a path; if there is none, a new one or, with `only_live`, a placeholder."""
    reader = _reader[-1]
    found = reader.adopt(path, kind)
    if found is NOTHING and only_live:
        return reader.stone(path, "generator")
    return new(None, kind) if found is NOTHING else found


def bare(kind: Any) -> Any:
    """Return an empty instance of `kind`, a subclass of dict that the user has defined."""
    return kind.__new__(kind)


def fill_bare(owner: Any, state: tuple[dict[str, Any], Any]) -> None:
    """Set the attributes and the default factory of an instance of a user's subclass of dict.

    Unlike in `fill`, this is done only at once, not when `apply` is called.
    """
    attributes, factory = state
    owner.__dict__.update(attributes)
    if factory is not None:
        owner.default_factory = factory


def fill(owner: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Register that `apply` sets the attributes of an instance; those of a new instance are also set at once."""
    attributes, slots = state

    def now() -> None:
        owner.__dict__.clear()
        owner.__dict__.update(attributes)
        for name, value in slots.items():
            setattr(owner, name, value)

    if not owner.__dict__:  # a new object, whose hash may depend on its attributes
        now()
    _reader[-1].later(now)


def function(path: Path | None, module: str, qualname: str, line: int, cells: tuple[CellType, ...]) -> Any:
    """Return the program's function at a path if it has this name and line; else make one from the program's code.

    `cells` are the closure's cells. If the program has no such code, return a placeholder.
    """
    reader = _reader[-1]
    found = reader.look(path)
    if isinstance(found, FunctionType):
        code = found.__code__
        if (code.co_qualname, code.co_firstlineno) == (qualname, line):
            return found
    made = reader.code(module, qualname, line)
    if made is None:
        return reader.stone(path, "function")
    return FunctionType(made, reader.module(module), made.co_name, None, cells)


def fill_function(owner: Any, state: tuple[Any, Any, dict[str, Any]]) -> None:
    """Register that `apply` sets a function's defaults and attributes."""
    defaults, keywords, attributes = state
    if type(owner) is FunctionType:
        _reader[-1].later(_setter(owner, "__defaults__", defaults))
        _reader[-1].later(_setter(owner, "__kwdefaults__", keywords))
        _reader[-1].later(_setter(owner, "__dict__", attributes))


def cell(path: Path | None) -> CellType:
    """Return the program's closure cell at a path; if there is none, a new empty one."""
    found = _reader[-1].adopt(path, CellType)
    return CellType() if found is NOTHING else found


def user_class(path: Path | None, module: str, qualname: str) -> Any:
    """Return the program's class at a path; if there is none, the class with this qualified name in its module."""
    reader = _reader[-1]
    found: Any = reader.look(path)
    if isinstance(found, type) and found.__qualname__ == qualname:
        return found
    names = qualname.split(".")
    found = reader.module(module).get(names[0])
    for name in names[1:]:
        found = getattr(found, name, None)
    return found if isinstance(found, type) else reader.stone(path, "class")


def list_items(made: Callable[[Any], Any], items: list[Any]) -> Any:
    """Return an iterator over the list `items`, which may be filled later; `made` creates the iterator."""
    return made(items)


def fill_list_items(iterator: Any, position: int) -> None:
    """Move a list's iterator to `position`: the number of items that it has passed."""
    late(lambda: iterator.__setstate__(position))


def fill_class(owner: type, state: dict[str, Any]) -> None:
    """Register that `apply` sets a class's plain attributes."""
    for name, value in state.items():
        _reader[-1].later(lambda name=name, value=value: setattr(owner, name, value))  # type: ignore[misc]


def tensor(
    path: Path | None,
    kind: type,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
    device: str,
    where: tuple[int, int, str | None, bool],
    requires_grad: bool,
    cut: bool,
) -> Any:
    """Return the program's tensor at a path if it can hold the saved values, else a new tensor.

    `where` describes the tensor's storage: number in the pickle, size, digest, and whether the program's setup creates
    it. `cut` means that the tensor had an autograd graph, which was not saved.
    """
    reader = _reader[-1]
    found: Any = reader.look(path)
    number, size, content, same = where
    if number < 0:
        data = torch.empty_strided(shape, stride, dtype=dtype, device=device)
        return as_kind(data, kind, requires_grad)
    storage, own = reader.storage(number, size, content, same, path, found, device)
    alike = own and not cut and found.is_leaf and found.dtype == dtype
    alike = alike and (tuple(found.shape), found.stride(), found.storage_offset()) == (shape, stride, offset)
    if alike and reader.adopt(path, kind) is not NOTHING:
        reader.later(_setter(found, "requires_grad", requires_grad))
        return found
    if cut:
        storage = reader.copied(number, storage)
    data = torch.empty(0, dtype=dtype, device=device).set_(storage, offset, shape, stride)
    if cut:
        return Cut.apply(data.requires_grad_(), told(path))  # type: ignore[no-untyped-call]
    return as_kind(data, kind, requires_grad)


def fill_tensor(owner: Tensor, state: dict[str, Any]) -> None:
    """Register that `apply` sets a tensor's gradient and attributes."""
    gradient = state.pop("grad", None)
    if owner.is_leaf:
        _reader[-1].later(_setter(owner, "grad", gradient))
    if state:
        _reader[-1].later(lambda: owner.__dict__.update(state))


def unchanged(path: Path, content: str, dtype: Any = None, shape: Any = None, order: str = "") -> Any:
    """Return the array at a path, which the program has created before its first training loop.

    Raises NotSaved if the array's digest is not `content`, or its dtype, shape or order differ. Checkpoints of earlier
    versions compare only the content, in C order.
    """
    found = _reader[-1].look(path)
    if not arrays.is_array(found):
        raise _differs(path)
    data, own = arrays.memory(found if order else found.copy("C"))
    if digest(data) != content or (order and (found.dtype, found.shape, own) != (dtype, shape, order)):
        raise _differs(path)
    return found


def same_value(path: Path, content: str) -> Any:
    """Return the object at a path, which the program has created before its first training loop.

    Raises NotSaved if the object's digest is not `content`.
    """
    found = _reader[-1].look(path)
    if found is NOTHING or content_digest(found) != content:
        raise _differs(path)
    return found


def array(content: str, dtype: Any, shape: tuple[int, ...], order: str) -> Any:
    """Return a new array with the saved bytes whose digest is `content`."""
    return arrays.arranged(bytearray(_reader[-1].blobs[content].numpy().tobytes()), dtype, shape, order)


def generator(path: Path | None, device: str) -> torch.Generator:
    """Return the program's torch generator at a path; if there is none, a new one."""
    found = _reader[-1].adopt(path, torch.Generator)
    return torch.Generator(device) if found is NOTHING else found


def fill_generator(owner: torch.Generator, state: Tensor) -> None:
    """Register that `apply` sets the state of a torch generator."""

    def now() -> None:
        owner.set_state(state)

    _reader[-1].later(now)
