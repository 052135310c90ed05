"""Read the data to predict as numbered rows: a dataset, arrays, a table, or files."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import TensorDataset, default_collate

from kernel_backend.definition.prediction_form import PREDICT_DATA
from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.data.columns import Columns, has_rows
from kernel_backend.runner.data.source import source

Collate = Callable[[list[Any]], Any]
_TABLES = (".csv", ".parquet")


class Rows(Protocol):
    """Data with a fixed order: row `i` is the same in every process."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def batch(self, first: int, end: int) -> Any:
        """Return the rows from `first` up to, but without, `end` as one batch."""


def open_rows(data: Any, collate: Collate | None = None, role: str = PREDICT_DATA) -> Rows:
    """Open the data that a function `role` has returned, or the file or folder at the path that it has returned.

    `collate` makes a batch of samples; by default that of the DataLoader, or torch's. Raises InvalidDefinition for
    data without a number of rows.
    """
    if isinstance(data, str | Path):
        return _open_path(Path(data).expanduser(), collate)
    if hasattr(data, "iloc"):
        return _Table(data)
    found = source(data, role)
    if found.stream:
        raise InvalidDefinition(
            f"{role}() returned {type(data).__name__}, whose rows have no numbers: return a dataset with __len__ and "
            "__getitem__, an array, a DataFrame, or the path of a CSV, parquet or .npy file"
        )
    usual = collate is None and found.collate is default_collate
    if usual and (has_rows(found.dataset) or type(found.dataset) in (TensorDataset, Columns)):
        return _Slices(found.dataset)
    return _Samples(found.dataset, collate or found.collate)


def _open_path(path: Path, collate: Collate | None) -> Rows:
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file() and not each.name.startswith("."))
        return _Samples(files, collate or list)
    if not path.is_file():
        raise InvalidDefinition(f"the data to predict is not there: {path.absolute()}")
    if path.suffix == ".npy":
        return _Slices(np.load(path, mmap_mode="r"))
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

    def __init__(self, data: Sequence[Any], collate: Collate) -> None:
        self._data, self._collate = data, collate

    def __len__(self) -> int:
        return len(self._data)

    def batch(self, first: int, end: int) -> Any:
        return self._collate([self._data[row] for row in range(first, end)])


class _Slices:
    """Tensors or arrays with an entry for each row, of which a batch is a slice."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def batch(self, first: int, end: int) -> Any:
        piece = self._data[first:end]
        return torch.tensor(piece) if isinstance(piece, np.ndarray) else piece  # a copy: a mapped file must not change


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
