"""Turn tensors and arrays into datasets of rows: a single one, a tuple of columns `(x, y)` or a dict of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

MOST_COLUMNS = 4  # in a tuple; a longer tuple is a list of samples


class Columns(Dataset[Any]):
    """Dataset of dicts: sample `index` holds row `index` of each column."""

    def __init__(self, columns: Mapping[str, Tensor]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return min(map(len, self._columns.values()))

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: column[index] for name, column in self._columns.items()}


def by_rows(value: Any) -> Any:
    """Return a dataset of rows if `value` is a tuple or dict of columns of equal length, else `value` itself."""
    if isinstance(value, Mapping) and _are_columns(list(value.values())):
        return Columns({name: torch.as_tensor(each) for name, each in value.items()})
    if isinstance(value, tuple) and 2 <= len(value) <= MOST_COLUMNS and _are_columns(value):
        return TensorDataset(*map(torch.as_tensor, value))
    return value


def has_rows(value: Any) -> bool:
    """Return True if a value is a tensor or a numeric array with at least one dimension."""
    numeric = isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf")
    return numeric and value.ndim > 0


def _are_columns(values: Any) -> bool:
    return bool(values) and all(map(has_rows, values)) and len({len(each) for each in values}) == 1
