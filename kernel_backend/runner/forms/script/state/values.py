"""Compute digests of large nested containers of plain values, of data frames and of images.

Digests depend on values only, not on object identity, so that equal data has equal digests in two processes.
"""

from __future__ import annotations

import itertools
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import xxhash

from kernel_backend.runner.forms.script.state.paths import Path

ATOMS = frozenset({int, float, str, bytes, bool, complex, type(None), type(...), type(NotImplemented), range, slice})
MANY = 2048  # smaller trees are always stored
_BRANCHES = frozenset({list, tuple, dict, Counter})
_SEQUENCES = frozenset({list, tuple})
# What pandas infers for columns of Python objects that cannot change.
_PLAIN_COLUMNS = frozenset({"string", "empty", "integer", "floating", "boolean", "decimal", "date", "datetime", "time"})


class Tree(NamedTuple):
    """Nested container of plain values: the paths of mutable containers in it, by `id()`, and its number of values."""

    paths: dict[int, Path]
    values: int


def tree_of(value: Any, path: Path) -> Tree | None:
    """Return a Tree that describes nested lists, tuples and dicts of plain values; None if `value` holds anything else.

    None is also returned if a mutable container occurs in it twice.
    """
    found: dict[int, Path] = {}
    count, left = 0, [(value, path)]
    while left:
        each, here = left.pop()
        if type(each) is not tuple and found.setdefault(id(each), here) is not here:
            return None
        keyed = isinstance(each, dict)
        items = list(each.values()) if keyed else each
        count += len(items)
        kinds = set(map(type, items))
        if not (kinds | set(map(type, each if keyed else ()))) <= ATOMS | _BRANCHES:
            return None
        left += [(key, (here, "key", None)) for key in each if type(key) is tuple] if keyed else []
        keys = list(each) if keyed else range(len(items))
        if kinds <= _SEQUENCES and set(map(type, itertools.chain.from_iterable(items))) <= ATOMS:
            count += sum(map(len, items))
            if not _enter(found, keys, items, here):
                return None
        elif not kinds <= ATOMS:
            inner = zip(keys, items, strict=True)
            left += [(one, (here, "item", key)) for key, one in inner if type(one) not in ATOMS]
    return Tree(found, count)


def _enter(found: dict[int, Path], keys: Sequence[Any], items: Sequence[Any], path: Path) -> bool:
    """Add the lists among `items` to `found`, with their paths; return False if one of them was there before.

    The items are at `path`, under `keys`. This is fast, as text corpora have millions of lists.
    """
    lists = [(key, each) for key, each in zip(keys, items, strict=True) if type(each) is list]
    before = len(found)
    found.update((id(each), (path, "item", key)) for key, each in lists)
    return len(found) - before == len(lists)


def large_tree(value: Any, path: Path) -> Tree | None:
    """Return the paths and the number of values in a large container of plain values; None for other objects."""
    found = tree_of(value, path) if type(value) in _BRANCHES else None
    return found if found is not None and found.values >= MANY else None


def is_data(value: Any) -> bool:
    """Return True for data frames, series and images, whose contents are plain values and arrays."""
    package = type(value).__module__.partition(".")[0]
    if package == "PIL":
        return isinstance(value, sys.modules["PIL.Image"].Image)
    if package != "pandas":
        return False
    pandas = sys.modules["pandas"]
    if isinstance(value, pandas.DataFrame):
        columns = [value.iloc[:, index] for index, dtype in enumerate(value.dtypes) if dtype.kind == "O"]
        return all(map(_is_plain, [*columns, value.index, value.columns]))
    return isinstance(value, pandas.Series) and all(map(_is_plain, [value, value.index]))


def _is_plain(column: Any) -> bool:
    """Return True if a pandas column or index holds no mutable Python objects."""
    return (
        column.dtype.kind != "O" or sys.modules["pandas"].api.types.infer_dtype(column, skipna=True) in _PLAIN_COLUMNS
    )


def content_digest(value: Any) -> str:
    """Return a digest (xxh3-128) of a value's content: that of its pickle. Raise any error of pickling.

    Examples
    --------
    >>> word = "to" + "ken"
    >>> content_digest([word, word]) == content_digest(["token", "tok" + "en"])
    True
    >>> content_digest([1]) == content_digest([1.0])
    False
    """
    seen = xxhash.xxh3_128()
    pickler = pickle.Pickler(_Writable(seen.update), protocol=5, buffer_callback=lambda each: seen.update(each.raw()))
    pickler.fast = True  # no references: a repeated value is written again
    pickler.dump(value)
    return str(seen.hexdigest())


class _Writable:
    """File-like object that passes what is written to it on to a function."""

    def __init__(self, write: Callable[[Any], None]) -> None:
        self._write = write

    def write(self, data: Any) -> None:
        self._write(data)
