"""Replace a loaded model's classes by the notebook's own if they are equivalent."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any, TypeVar

from kernel_backend.client import Client
from kernel_backend.snapshots.loaded import loaded

M = TypeVar("M")  # a torch module, or a Keras model
_ABOUT = {"__module__", "__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__", "_abc_impl"}


def with_own_classes(model: M, module: ModuleType, notebook: Mapping[str, Any]) -> M:
    """Replace the classes of a loaded model's modules by equivalent classes of the notebook; return the model.

    `module` is the definition from which the model was loaded, `notebook` the notebook's variables; classes are paired
    by name. Then `isinstance(net, Net)` is True in the notebook, and pickles of the model can be loaded wherever the
    cells with these classes have run. A model of Keras has layers in place of modules.
    """
    same = _Same(module.__dict__, notebook)
    whole: Any = model
    for part in whole._flatten_layers() if hasattr(whole, "_flatten_layers") else whole.modules():
        kind = type(part)
        derived = kind.__module__ == "torch.nn.utils.parametrize" and hasattr(part, "parametrizations")
        if derived:  # by torch, for this module alone
            (kind,) = kind.__bases__
        own = notebook.get(kind.__qualname__)
        if kind.__module__ == module.__name__ and isinstance(own, type) and same.classes(kind, own):
            if derived:
                type(part).__bases__ = (own,)
            else:
                part.__class__ = own
    return model


def submitted_code(client: Client, number: int) -> ModuleType:
    """Return the training definition of an experiment as a module, executed once per process without its training."""
    return loaded(client.experiment(number).experiment.snapshot, lambda: client.archive(number))


def equivalent(one: Any, other: Any, ones: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Return whether two classes or functions do the same; `ones` and `others` are the variables of their modules."""
    return _Same(ones, others)._values(one, other)


class _Same:
    """Comparison of classes and functions in two namespaces, by code, values, and the objects to which they refer."""

    def __init__(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
        self._one, self._other = one, other
        self._compared: dict[tuple[int, int], object] = {}  # pairs under comparison, which count as equal

    def classes(self, one: type, other: type) -> bool:
        """Return whether two classes have equal names, and equivalent bases, methods and class attributes."""
        if one is other or self._begun(one, other):
            return True
        mine, theirs = (
            {name: each for name, each in vars(kind).items() if name not in _ABOUT} for kind in (one, other)
        )
        bases = len(one.__bases__) == len(other.__bases__) and all(map(self.classes, one.__bases__, other.__bases__))
        return bases and one.__name__ == other.__name__ and self._all(mine, theirs)

    def _begun(self, one: object, other: object) -> bool:
        """Return whether two objects are compared already, and hold them: others might get their ids."""
        pair = (id(one), id(other))
        return self._compared.setdefault(pair, held := [one, other]) is not held

    def _all(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        return one.keys() == other.keys() and all(self._values(each, other[name]) for name, each in one.items())

    def _values(self, one: Any, other: Any) -> bool:
        if one is other:
            return True
        if type(one) is not type(other):
            return self.classes(type(one), type(other)) and self._objects(one, other)
        if isinstance(one, FunctionType):
            return self._functions(one, other)
        if isinstance(one, CodeType):
            return self._code(one, other)
        if isinstance(one, type):
            return self.classes(one, other)
        if isinstance(one, staticmethod | classmethod):
            return self._values(one.__func__, other.__func__)
        if isinstance(one, property):
            return all(self._values(getattr(one, name), getattr(other, name)) for name in ("fget", "fset", "fdel"))
        if isinstance(one, list | tuple):
            return len(one) == len(other) and all(map(self._values, one, other))
        if isinstance(one, dict | MappingProxyType):
            return self._all(one, other)
        if isinstance(one, int | float | complex | str | bytes | frozenset):
            return bool(one == other)
        return self._objects(one, other)

    def _objects(self, one: Any, other: Any) -> bool:
        """Return whether two objects consist of equivalent parts, such as a dataclass's fields and an enum's members.

        They are taken apart as for a pickle; those that cannot be count as different.
        """
        if self._begun(one, other):
            return True
        try:
            mine, theirs = (each.__reduce_ex__(4) for each in (one, other))
        except Exception:  # any error of a user's class
            return False
        if not isinstance(mine, tuple) or not isinstance(theirs, tuple):
            return bool(mine == theirs)
        return self._values(
            *([list(part) if isinstance(part, Iterator) else part for part in parts] for parts in (mine, theirs))
        )

    def _functions(self, one: FunctionType, other: FunctionType) -> bool:
        if self._begun(one, other):
            return True
        defaults = self._values(one.__defaults__, other.__defaults__)
        return (
            defaults
            and self._values(one.__kwdefaults__, other.__kwdefaults__)
            and self._code(one.__code__, other.__code__)
        )

    def _code(self, one: CodeType, other: CodeType) -> bool:
        """Return whether two functions have the same code, and names that refer to equivalent objects.

        File and line of the code are ignored.
        """
        if (one.co_names, one.co_varnames, one.co_freevars) != (other.co_names, other.co_varnames, other.co_freevars):
            return False
        if one.co_code != other.co_code and not _same_source(one, other):
            return False
        pairs = list(zip(one.co_consts, other.co_consts, strict=False))
        if len(one.co_consts) != len(other.co_consts) or not all(self._constants(*pair) for pair in pairs):
            return False
        found = [name for name in one.co_names if name in self._one and name[:2] != "__"]  # `__name__` is the module's
        return all(name in self._other and self._values(self._one[name], self._other[name]) for name in found)

    def _constants(self, one: Any, other: Any) -> bool:
        if isinstance(one, CodeType) and isinstance(other, CodeType):
            return self._code(one, other)
        return type(one) is type(other) and bool(one == other)


def _same_source(one: CodeType, other: CodeType) -> bool:
    """Return whether two functions have the same source; False if the source of one is unknown.

    Equal sources may have different bytecode: calls such as `F.relu` are compiled differently if the import is in the
    same cell.
    """
    try:
        texts = (textwrap.dedent(inspect.getsource(each)) for each in (one, other))
        before, after = (ast.dump(ast.parse(each)) for each in texts)
    except (OSError, SyntaxError):
        return False
    return before == after
