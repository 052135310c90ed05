"""Compute a digest of each variable of a running program, to compare two processes at the same step."""

from __future__ import annotations

import inspect
import io
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import torch
import xxhash

from kernel_backend.runner.determinism.digests import tensor_digest
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.forms.script import frames

try:
    import numpy as np
except ImportError:  # torch runs without it
    np = None  # type: ignore[assignment]

_DEEPEST = 40
# Types without state of their own, or whose state is no result.
_SKIPPED = (ModuleType, type, BuiltinFunctionType, CodeType, FrameType, GeneratorType)
# Packages whose objects hold times, or the loggers of the process, of which Daylight has some.
_NO_RESULT = ("tqdm", "logging")


def program_digests(
    builtins: Mapping[str, Any], main: ModuleType, frame: FrameType, ignored: frozenset[str]
) -> dict[str, str]:
    """Return, by name, digests of the program's globals, the locals of its functions, and the random states.

    `frame` is the innermost running function. Attributes named in `ignored` are left out.
    """
    found = {"random states": value_digest(RandomStates().state_dict(), ignored)}
    for module, namespace in frames.program_modules(builtins, main, {}).items():
        prefix = "" if module == "__main__" else f"{module}."
        own = named_digests(frames.names(namespace), ignored)
        found |= {f"{prefix}{name}": each for name, each in own.items()}
    for each in frames.program_frames(frame, builtins):
        found |= {
            f"{name} of {each.f_code.co_name}()": one for name, one in named_digests(each.f_locals, ignored).items()
        }
    return found


def named_digests(names: Mapping[str, Any], ignored: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the digests of the variables in `names`, by name, without classes and imported modules.

    Variables and attributes named in `ignored` are left out. A value that raises while it is read, as users' objects
    may, has its error as its digest.
    """
    values = {name: value for name, value in names.items() if name not in ignored and not _is_skipped(value)}
    return {name: _digest_or_error(value, ignored) for name, value in values.items()}


def _digest_or_error(value: Any, ignored: frozenset[str]) -> str:
    try:
        return value_digest(value, ignored)
    except Exception as error:
        return f"unreadable: {type(error).__name__}"


def value_digest(value: Any, ignored: frozenset[str] = frozenset()) -> str:
    """Return a digest of a value, which is equal in two processes if the value is equal.

    Attributes named in `ignored` are left out.

    Examples
    --------
    >>> value_digest({"a": [1, 2.0]}) == value_digest({"a": [1, 2.0]})
    True
    >>> value_digest([1, 2]) == value_digest([1, 3])
    False
    """
    seen = xxhash.xxh3_128()
    _Digester(seen.update, ignored).take(value, 0)
    return str(seen.hexdigest())


class _Digester:
    """Digest of an object and of all objects that it refers to; an object that occurs again is written as a number."""

    def __init__(self, update: Callable[[bytes], None], ignored: frozenset[str]) -> None:
        self._update, self._ignored = update, ignored
        self._met: dict[int, int] = {}
        self._held: list[Any] = []  # keeps objects alive, so that ids stay unique

    def take(self, value: Any, depth: int) -> None:
        if isinstance(value, str | bytes | int | float | complex | bool | type(None)):
            self._say(f"{type(value).__name__}:{value!r}")
            return
        if id(value) in self._met:
            self._say(f"again:{self._met[id(value)]}")
            return
        self._met[id(value)] = len(self._met)
        self._held.append(value)
        self._say(f"{type(value).__module__}.{type(value).__qualname__}")
        if depth < _DEEPEST and not _is_skipped(value):
            self._inner(value, depth + 1)

    def _inner(self, value: Any, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            self._tensor(value, depth)
        elif np is not None and isinstance(value, np.ndarray | np.generic) and value.dtype != object:
            self._say(f"{value.dtype}{value.shape}")
            self._update(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, Mapping):
            for key, each in value.items():
                if key not in self._ignored:
                    self.take(key, depth)
                    self.take(each, depth)
        elif isinstance(value, list | tuple):
            for each in value:
                self.take(each, depth)
        elif isinstance(value, set | frozenset):
            self._say(repr(sorted(map(repr, value))))
        elif isinstance(value, FunctionType):
            self._function(value, depth)
        elif isinstance(value, MethodType):
            self.take(value.__self__, depth)
        elif isinstance(value, torch.Generator):
            self.take(value.get_state(), depth)
        elif isinstance(value, random.Random):
            self.take(value.getstate(), depth)
        elif isinstance(value, io.IOBase):
            self._say(str(getattr(value, "mode", "")))
        else:
            self._object(value, depth)

    def _tensor(self, value: torch.Tensor, depth: int) -> None:
        self._say(f"{value.requires_grad}")
        plain = value.detach()
        self._say(tensor_digest(plain.to_dense() if plain.layout != torch.strided else plain))
        if value.is_leaf and value.grad is not None:
            self.take(value.grad, depth)

    def _function(self, value: FunctionType, depth: int) -> None:
        inner = inspect.unwrap(value)  # generator functions are wrapped in a job
        if not isinstance(inner, FunctionType):  # as of a function that torch.compile has made
            self.take(inner, depth)
            return
        value = inner
        for cell in value.__closure__ or ():
            try:
                self.take(cell.cell_contents, depth)
            except ValueError:  # an empty closure cell
                self._say("unbound")
        self.take(value.__defaults__, depth)
        self.take(vars(value), depth)

    def _object(self, value: Any, depth: int) -> None:
        kind = type(value)
        if kind.__module__.split(".")[0] in _NO_RESULT:
            return
        state = getattr(value, "__dict__", None)
        slots = [name for each in kind.__mro__ for name in getattr(each, "__slots__", ()) if isinstance(name, str)]
        if isinstance(state, dict):
            self.take(_without_hook_ids(state), depth)
        if slots:
            self.take({name: getattr(value, name) for name in slots if hasattr(value, name)}, depth)
        if isinstance(state, dict) or slots:
            return
        try:
            reduced = value.__reduce_ex__(2)
        except Exception:  # the object has no state that could be compared
            return
        self.take(reduced[1:] if isinstance(reduced, tuple) else reduced, depth)

    def _say(self, text: str) -> None:
        self._update(text.encode("utf-8", "surrogatepass") + b"\0")


def _is_skipped(value: Any) -> bool:
    kind = type(value)  # isinstance would ask the object, which may raise, for its class
    return issubclass(kind, _SKIPPED) and not (issubclass(kind, ModuleType) and frames.is_made(value))


def _without_hook_ids(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a module or an optimizer, with its dicts of hooks as lists.

    torch numbers hooks in the order of their registration in the process, and Daylight registers hooks of its own.
    """
    return {
        name: list(each.values()) if "_hooks" in name and isinstance(each, OrderedDict) else each
        for name, each in state.items()
    }
