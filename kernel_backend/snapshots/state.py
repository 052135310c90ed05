"""Digest a value so that equal values have equal digests in the notebook and in a job.

Values are equal if their type and content are equal. NaN equals itself, and 0.0 equals -0.0. The order of a dict
matters, as code may depend on it; that of a set does not. Nothing is imported: numpy values, for example, are
recognised by the numpy that this process has imported. Attributes whose names begin with an underscore (a cache, an
open file) are ignored in modules and in objects of the notebook's classes.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import math
import pathlib
import reprlib
import struct
import sys
import types
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import xxhash

from kernel_backend.model.snapshot import MODULE, OTHER_MODULE, State

MOST_BYTES = 400 * 2**20  # per value; larger ones are not compared
MOST_PARTS = 200_000  # elements of containers per value, as each is visited
_SHOWN = 60  # characters
_OWN = {"__main__", MODULE, OTHER_MODULE}  # module of the notebook's classes, in the notebook and in a job


def state_of(value: object) -> State | None:
    """Return the digest of a value and a text for display; None if the value is too large or cannot be compared."""
    digest = digest_of(value)
    return None if digest is None else State(digest=digest, shown=shown(value, digest))


def digest_of(value: object) -> str | None:
    """Return the xxh3-128 of a value's type and content in hex; None in the same cases as `state_of`."""
    try:
        return _Digest().of(value).hex()
    except Exception:  # an unknown kind, or one whose own code raises
        return None


def shown(value: object, digest: str) -> str:
    """Return a value as text in one line; a large value as type, shape and the first digits of its digest."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None and math.prod(shape) > 8:
        return f"{type(value).__name__} of {str(dtype).removeprefix('torch.')} {tuple(shape)} ({digest[:8]})"
    if (shape is not None and dtype is None) or is_module(value):
        return f"{type(value).__name__} ({digest[:8]})"
    text = " ".join(_repr.repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 14]}... ({digest[:8]})"


class _Unknown(Exception):
    pass


class _Digest:
    def __init__(self) -> None:
        self.parts = 0
        self.bytes = 0

    def of(self, value: Any) -> bytes:
        self.parts += 1
        if self.parts > MOST_PARTS:
            raise _Unknown
        kind = type(value)
        if kind in _PLAIN:
            return self._hashed(kind.__name__, _PLAIN[kind](value))
        if kind in (list, tuple):
            return self._hashed(kind.__name__, *map(self.of, value))
        if kind is deque:
            return self._hashed("deque", repr(value.maxlen).encode(), *map(self.of, value))
        if kind in (dict, OrderedDict, defaultdict, Counter):
            return self._hashed(kind.__name__, *(self.of(part) for pair in value.items() for part in pair))
        if kind in (set, frozenset):
            return self._hashed(kind.__name__, *sorted(map(self.of, value)))
        return self._of_object(value) or self._of_library(value)

    def _of_object(self, value: Any) -> bytes | None:
        """Return the digest of an object: of its class's name and its attributes; None if it cannot be compared.

        The module of the class is left out, because it differs in a job.
        """
        name = type(value).__qualname__
        if isinstance(value, enum.Enum):
            return self._hashed("enum", name.encode(), value.name.encode())
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._hashed("tuple", name.encode(), *map(self.of, value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [(field.name.encode(), self.of(getattr(value, field.name))) for field in dataclasses.fields(value)]
            return self._hashed("dataclass", name.encode(), *(part for pair in fields for part in pair))
        if isinstance(value, pathlib.PurePath):
            return self._hashed("path", str(value).encode())
        if isinstance(value, functools.partial):
            return self._hashed("partial", self._function(value.func), self.of(value.args), self.of(value.keywords))
        if type(value) in (types.SimpleNamespace, argparse.Namespace) or _is_own(value):
            return self._hashed("object", name.encode(), *self._attributes(value))
        return self._function(value) if isinstance(value, _FUNCTIONS) and self.parts > 1 else None

    def _attributes(self, value: Any) -> Iterator[bytes]:
        for name, each in sorted(vars(value).items()):
            if not (_is_own(value) and name.startswith("_")):
                yield from (name.encode(), self.of(each))

    def _function(self, value: Any) -> bytes:
        """Return the digest of a named function, which is that of its name: the training definition has its code."""
        module = getattr(value, "__module__", None) or getattr(getattr(value, "__self__", None), "__name__", None)
        name = getattr(value, "__qualname__", "<")
        if "<" in name:  # <lambda>, <locals>
            raise _Unknown
        return self._hashed("function", ("" if module in _OWN else str(module)).encode(), name.encode())

    def _of_library(self, value: Any) -> bytes:
        numpy, torch, pandas = (sys.modules.get(name) for name in ("numpy", "torch", "pandas"))
        if numpy is not None and (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
            return self._of_array(value, numpy)
        if torch is not None and isinstance(value, torch.nn.Module):
            parts = [part for name, each in value.state_dict().items() for part in (name.encode(), self.of(each))]
            return self._hashed("module", type(value).__qualname__.encode(), *parts, *self._tree(value))
        if torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter):
            return self._of_tensor(value, torch)
        if torch is not None and isinstance(value, torch.dtype | torch.device | torch.Size):
            return self._hashed("torch", str(value).encode())
        if pandas is not None and isinstance(value, pandas.DataFrame):
            columns = [self.of(value.iloc[:, at].to_numpy()) for at in range(value.shape[1])]
            return self._hashed("table", self.of(list(value.columns)), self.of(value.index.to_numpy()), *columns)
        if pandas is not None and isinstance(value, pandas.Series | pandas.Index):
            index = [self.of(value.index.to_numpy())] if isinstance(value, pandas.Series) else []
            return self._hashed("series", self.of(value.name), self.of(value.to_numpy()), *index)
        raise _Unknown

    def _tree(self, module: Any) -> Iterator[bytes]:
        """Yield digests of a torch module's state that `state_dict` omits: submodules, settings, and frozen weights."""
        for name, each in module.named_modules():
            given = {
                name: value
                for name, value in sorted(vars(each).items())
                if name not in _MODES and not name.startswith("_") and _is_setting(value)
            }
            yield from (name.encode(), type(each).__qualname__.encode(), self.of(given))
        yield self.of([name for name, each in module.named_parameters() if not each.requires_grad])

    def _of_array(self, value: Any, numpy: Any) -> bytes:
        array = numpy.asarray(value)
        if array.dtype.hasobject:
            return self._hashed("objects", repr(array.shape).encode(), self.of(array.ravel().tolist()))
        self._count(array.nbytes)
        content = numpy.ascontiguousarray(array).reshape(-1).view("u1").data
        return self._hashed("array", repr((array.dtype.descr, array.shape)).encode(), content)

    def _of_tensor(self, value: Any, torch: Any) -> bytes:
        self._count(value.numel() * value.element_size())
        plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
        content = plain.reshape(-1).view(torch.uint8).numpy().data
        return self._hashed("tensor", repr((str(value.dtype), tuple(value.shape))).encode(), content)

    def _count(self, size: int) -> None:
        self.bytes += size
        if self.bytes > MOST_BYTES:
            raise _Unknown

    def _hashed(self, kind: str, *parts: Any) -> bytes:
        found = xxhash.xxh3_128(kind.encode())
        for part in parts:
            size = len(part)
            self._count(size if kind in ("bytes", "str") else 0)
            found.update(struct.pack("<q", size))
            found.update(part)
        return found.digest()


def _float(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value + 0.0)  # -0.0 + 0.0 is 0.0


def _integer(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


_BY_REPR = (
    *(decimal.Decimal, fractions.Fraction, uuid.UUID, slice),
    *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta),
)
_PLAIN: dict[type, Any] = {
    type(None): lambda value: b"",
    type(...): lambda value: b"",
    bool: lambda value: bytes([value]),
    int: _integer,
    float: _float,
    complex: lambda value: _float(value.real) + _float(value.imag),
    str: lambda value: value.encode(errors="surrogatepass"),
    bytes: bytes,
    bytearray: bytes,
    range: lambda value: repr(value).encode(),
    **dict.fromkeys(_BY_REPR, lambda value: repr(value).encode()),
}
_FUNCTIONS = (type, types.FunctionType, types.BuiltinFunctionType)
_MODES = ("training",)  # set by the job
_repr = reprlib.Repr()
_repr.maxdict = _repr.maxlist = _repr.maxtuple = _repr.maxset = 8
_repr.maxstring = _repr.maxother = _repr.maxlong = _SHOWN


def is_module(value: object) -> bool:
    """Return True if a value is a `torch.nn.Module`."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _is_setting(value: object) -> bool:
    """Return True if a module's attribute is a setting, such as a number or a named function, not a computed value."""
    if type(value) in (list, tuple):
        return all(map(_is_setting, value))  # type: ignore[call-overload]
    if type(value) is dict:
        return all(_is_setting(part) for pair in value.items() for part in pair)
    return type(value) in _PLAIN or (isinstance(value, _FUNCTIONS) and "<" not in value.__qualname__)


def _is_own(value: object) -> bool:
    """Return True if a value's class is defined in the notebook, and its attributes are all of its state."""
    kind = type(value)
    return (
        kind.__module__ in _OWN
        and hasattr(value, "__dict__")
        and kind.__basicsize__ == _Plain.__basicsize__
        and not kind.__itemsize__
        and not any(vars(each).get("__slots__") for each in kind.__mro__)
    )


class _Plain:
    pass
