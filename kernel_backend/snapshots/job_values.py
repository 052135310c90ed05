"""Pickle the values that a cell has set in a job into one file, so that they share in the notebook what they share.

The notebook reads them by `object_graph.unpickled`.
"""

from __future__ import annotations

import io
import pickle
import reprlib
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, NamedTuple

import cloudpickle
import xxhash

from kernel_backend.model.sizes import size, size_word
from kernel_backend.snapshots.object_graph import JOB, reduced_object, reduced_view

_SHOWN = 200  # characters of a value's text


class Written(NamedTuple):
    """Values that were written: the text of each, why others are missing, the classes they need, bytes and digest."""

    values: dict[str, str]
    missing: dict[str, str]
    needs: tuple[str, ...]
    bytes: int
    digest: str


def write(values: Mapping[str, Any], file: IO[bytes], most: int) -> Written:
    """Pickle values by name into a seekable file, without those that cannot be pickled, and the largest beyond `most`.

    Raises OSError if the file cannot be written.
    """
    missing: dict[str, str] = {}
    while True:
        left = {name: value for name, value in values.items() if name not in missing}
        file.seek(0)
        file.truncate()
        try:
            pickler = _pickled(left, target := _Digesting(file, most))
        except OSError:
            raise
        except Exception:  # any error of a user's class: find whose it is
            found = _unpicklable(left)
            missing |= found or dict.fromkeys(left, "it cannot be pickled together with the cell's other values")
            continue
        if target.bytes <= most:
            texts = {name: shown(value) for name, value in left.items()}
            return Written(texts, missing, tuple(pickler.needs), target.bytes, target.hexdigest())
        missing |= _largest(left, target.bytes - most, most)


def digest(value: Any) -> str | None:
    """Return a digest of a value's content, which changes if the value does; None if it cannot be pickled."""
    target = _Digesting()
    try:
        _pickled(value, target)
    except Exception:  # any error of a user's class
        return None
    return target.hexdigest()


def shown(value: Any) -> str:
    """Return a value's `repr`, shortened to one line."""
    try:
        text = reprlib.repr(value) if isinstance(value, list | tuple | dict | set | str) else repr(value)
    except Exception as error:  # raised by a user's class
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    text = " ".join(text[: 2 * _SHOWN].split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _unpicklable(values: Mapping[str, Any]) -> dict[str, str]:
    """Return why values cannot be pickled, by name, for those that cannot."""
    found = {}
    for name, value in values.items():
        try:
            _pickled(value, _Digesting())
        except Exception as error:  # any error of a user's class
            found[name] = f"a {type(value).__name__} cannot be pickled ({_reason(error)}); it reads {shown(value)}"
    return found


def _largest(values: Mapping[str, Any], excess: int, most: int) -> dict[str, str]:
    """Return why the largest values are left out, by name: so many that at least `excess` bytes are saved."""
    sizes = {}
    for name, value in values.items():
        _pickled(value, target := _Digesting())
        sizes[name] = target.bytes
    found: dict[str, str] = {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if excess <= 0:
            break
        found[name] = (
            f"it has {size(sizes[name])}, and all values together may have {size(most)}: submit with --values "
            f"{size_word(_rounded(sum(sizes.values())))}"
        )
        excess -= sizes[name]
    return found


def _rounded(count: int) -> int:
    """Return a number of bytes that is no less, in two digits."""
    unit = int("1" + "0" * (len(str(count)) - 2))
    return -(-count // unit) * unit


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def _pickled(value: Any, target: _Digesting) -> _Pickler:
    pickler = _Pickler(target, protocol=5)
    pickler.needs = {}
    pickler.arrays = frozenset(_arrays(value.values())) if isinstance(value, dict) else frozenset()
    pickler.dump(value)
    return pickler


def _arrays(values: Iterable[Any]) -> Iterator[int]:
    """Yield the ids of arrays among values, and of those that one of them shows whole, such as one before `reshape`."""
    for each in values:
        if type(each).__qualname__ == "ndarray":
            yield id(each)
            if getattr(each.base, "nbytes", None) == each.nbytes:
                yield id(each.base)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickler that refers to the program's classes and functions by name, and stores lambdas and the like by code."""

    needs: dict[str, None]
    arrays: frozenset[int]  # ids of arrays that are pickled in any case, so that views of them are none the larger

    def reducer_override(self, obj: Any) -> Any:
        """Return how to pickle an object; NotImplemented for one that is pickled as usual."""
        if isinstance(obj, type | types.FunctionType):
            if obj.__module__ not in JOB or not _is_named(obj):
                return super().reducer_override(obj)
            self.needs[obj.__qualname__.partition(".")[0]] = None
            return NotImplemented
        if isinstance(obj, io.IOBase):
            raise pickle.PicklingError("an open file belongs to the job's process")
        reduced = reduced_object(obj)
        if reduced is NotImplemented:
            reduced = reduced_view(obj, self.arrays)
        return super().reducer_override(obj) if reduced is NotImplemented else reduced


def _is_named(obj: Any) -> bool:
    """Return True if the module of a class or function has it under its name."""
    found: Any = sys.modules.get(obj.__module__)
    for name in obj.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is obj


class _Digesting:
    """Output that counts and digests what is written to it, and passes the first `most` bytes on to a file."""

    def __init__(self, file: IO[bytes] | None = None, most: int = 0) -> None:
        self._file, self._most, self._digest = file, most, xxhash.xxh3_128()
        self.bytes = 0

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        self._digest.update(data)
        self.bytes += count
        if self._file is not None and self.bytes <= self._most:
            self._file.write(data)
        return count

    def hexdigest(self) -> str:
        return str(self._digest.hexdigest())
