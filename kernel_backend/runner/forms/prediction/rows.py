"""Read the data to predict as numbered rows: a dataset, arrays, a table, or files."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from kernel_backend.errors import InvalidDefinition

_TABLES = (".csv", ".parquet")


class Rows(Protocol):
    """Data with a fixed order: row `i` is the same in every process."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def batch(self, first: int, end: int) -> Any:
        """Return the rows from `first` up to, but without, `end` as one batch."""


def open_rows(data: Any, collate: Callable[[list[Any]], Any] | None = None) -> Rows:
    """Open what `predict_data()` has returned, or the file or folder at the path that it has returned.

    `collate` makes a batch of a dataset's samples; by default that of the DataLoader, or torch's. Raises
    InvalidDefinition for data without a number of rows.
    """
    if isinstance(data, str | Path):
        return _open_path(Path(data).expanduser(), collate)
    if isinstance(data, DataLoader):
        return open_rows(data.dataset, data.collate_fn if collate is None else collate)
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
        raise InvalidDefinition(
            f"predict_data() returned {type(data).__name__}, whose rows have no numbers: return a dataset with "
            "__len__ and __getitem__, an array, a DataFrame, or the path of a CSV, parquet or .npy file"
        )
    if hasattr(data, "iloc"):
        return _Table(data)
    if isinstance(data, Mapping) or hasattr(data, "shape"):
        return _Arrays(data)
    return _Samples(data, collate or default_collate)


def _open_path(path: Path, collate: Callable[[list[Any]], Any] | None) -> Rows:
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file() and not each.name.startswith("."))
        return _Samples(files, collate or list)
    if not path.is_file():
        raise InvalidDefinition(f"the data to predict is not there: {path.absolute()}")
    if path.suffix == ".npy":
        import numpy as np

        return _Arrays(np.load(path, mmap_mode="r"))
    if path.suffix == ".csv":
        return _Table(_library("pandas", path).read_csv(path))
    if path.suffix == ".parquet":
        return _Parquet(_library("pyarrow.parquet", path).ParquetFile(path))
    raise InvalidDefinition(f"{path.name}: the data to predict is a folder, or a {', '.join(_TABLES)} or .npy file")


def _library(name: str, path: Path) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidDefinition(
            f"{path.name} is read with {name.partition('.')[0]}: pip install it ({error})"
        ) from None


class _Samples:
    """Samples of a map-style dataset, or of any sequence."""

    def __init__(self, data: Sequence[Any], collate: Callable[[list[Any]], Any]) -> None:
        self._data, self._collate = data, collate

    def __len__(self) -> int:
        return len(self._data)

    def batch(self, first: int, end: int) -> Any:
        return self._collate([self._data[row] for row in range(first, end)])


class _Arrays:
    """Arrays or tensors with one entry a row: one, or several by name, which are batches of tensors."""

    def __init__(self, data: Any) -> None:
        self._data = data
        lengths = {len(each) for each in data.values()} if isinstance(data, Mapping) else {len(data)}
        if len(lengths) != 1:
            raise InvalidDefinition(f"predict_data() returned arrays of several lengths: {sorted(lengths)}")
        (self._length,) = lengths

    def __len__(self) -> int:
        return self._length

    def batch(self, first: int, end: int) -> Any:
        if isinstance(self._data, Mapping):
            return {name: _tensor(each[first:end]) for name, each in self._data.items()}
        return _tensor(self._data[first:end])


def _tensor(piece: Any) -> Any:
    if isinstance(piece, torch.Tensor):
        return piece
    return torch.as_tensor(piece.copy() if hasattr(piece, "copy") else piece)  # a file that is mapped must not change


class _Table:
    """DataFrame, whose batches are DataFrames."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def batch(self, first: int, end: int) -> Any:
        return self._data.iloc[first:end].reset_index(drop=True)


class _Parquet:
    """Parquet file, of which only the row groups of the wanted rows are read; batches are DataFrames."""

    def __init__(self, file: Any) -> None:
        self._file, self._starts = file, [0]
        for number in range(file.metadata.num_row_groups):
            self._starts.append(self._starts[-1] + file.metadata.row_group(number).num_rows)
        self._read: tuple[tuple[int, ...], Any] = ((), None)  # the newest groups, and their rows

    def __len__(self) -> int:
        return self._starts[-1]

    def batch(self, first: int, end: int) -> Any:
        groups = tuple(
            number
            for number, begins in enumerate(self._starts[:-1])
            if begins < end and self._starts[number + 1] > first
        )
        if groups != self._read[0]:
            self._read = groups, self._file.read_row_groups(list(groups))
        offset = first - self._starts[groups[0]]
        return self._read[1].slice(offset, end - first).to_pandas()
