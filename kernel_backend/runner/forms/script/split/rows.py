"""Decide, from shapes alone, which rows of a call's tensors each rank computes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

_MOST_SIZES, _MOST_ATTEMPTS = 3, 12
LEAST_ROWS = 2  # per rank: modules may squeeze a dimension of length one


class Kind(Enum):
    """How the ranks' outputs of a split call are combined into one output.

    Rows are concatenated, means averaged, and sums added up; of outputs that are equal on all ranks, one is taken.
    """

    ROWS = "rows"  # has one row for each row of the inputs
    MEAN = "mean"  # is the mean over rows, or independent of them
    SUM = "sum"
    SAME = "same"  # is equal for all parts of a batch


class Part(NamedTuple):
    """Rule for a tensor of a call that is split over the ranks.

    An input of the call is divided over the ranks; an output is combined from the tensors that the ranks computed.
    """

    kind: Kind
    dim: int | None = None  # dimension of the rows


Dims = tuple[int | None, ...]  # row dimension of each tensor; None for a tensor that every rank uses whole


class Plan(NamedTuple):
    """How a call is split: the row dimension of each input (None: used whole), and how each output is combined."""

    inputs: Dims
    outputs: tuple[Part, ...]


def shares(rows: int, ranks: int) -> list[tuple[int, int]]:
    """Return, for each rank, the index of its first row and the number of its rows. The first ranks may have one more.

    Examples
    --------
    >>> shares(7, 2)
    [(0, 4), (4, 3)]
    """
    least, more = divmod(rows, ranks)
    counts = [least + (rank < more) for rank in range(ranks)]
    return list(zip(itertools.accumulate(counts, initial=0), counts, strict=False))


def trial_parts(rows: int) -> tuple[int, int]:
    """Return how many rows the two parts of a batch get in the test run of a call. The first is odd where possible.

    An even border would not detect modules that couple pairs of rows.

    Examples
    --------
    >>> trial_parts(8), trial_parts(6), trial_parts(4)
    ((5, 3), (3, 3), (2, 2))
    """
    first = rows // 2 | 1
    first = first if rows - first >= LEAST_ROWS else rows // 2
    return first, rows - first


def rows_of(shapes: Sequence[Sequence[int]], dims: Dims) -> int:
    """Return the number of rows of a batch: the size of the first tensor that has a row dimension, along it.

    `shapes` has the shape of each tensor, `dims` its row dimension, None for a tensor without rows.
    """
    return next(shape[dim] for shape, dim in zip(shapes, dims, strict=True) if dim is not None)


def fits(shapes: Sequence[Sequence[int]], dims: Dims, ranks: int) -> bool:
    """Return True if all row dimensions have the same size, and each rank gets at least two rows.

    `shapes` has the shape of each tensor, `dims` its row dimension, None for a tensor without rows.
    """
    counts = {shape[dim] for shape, dim in zip(shapes, dims, strict=True) if dim is not None}
    return len(counts) == 1 and counts.pop() >= LEAST_ROWS * ranks


def candidates(shapes: Sequence[Sequence[int]], ranks: int) -> Iterator[Dims]:
    """Yield guesses at which dimension of each tensor has the rows of the batch, the likeliest guess first.

    `shapes` are the tensors' shapes. Dimensions of equal size, and early ones, are likely; each must be large enough
    for all `ranks`. None means that a tensor has no rows.

    Examples
    --------
    >>> list(candidates([(8, 3), (8,)], ranks=2))
    [(0, 0), (0, None), (None, 0)]
    >>> next(candidates([(5, 8, 3), (1, 8, 16)], ranks=2))  # a sequence first, with a state of a recurrent network
    (0, None)
    """
    sizes = dict.fromkeys(size for shape in shapes for size in shape if size >= LEAST_ROWS * ranks)
    found = (_with_size(shapes, size) for size in itertools.islice(sizes, _MOST_SIZES))
    yield from itertools.islice(itertools.chain.from_iterable(found), _MOST_ATTEMPTS)


def _with_size(shapes: Sequence[Sequence[int]], size: int) -> Iterator[Dims]:
    options = [[*(dim for dim, each in enumerate(shape) if each == size), None] for shape in shapes]
    for dims in itertools.product(*options):
        if any(dim is not None for dim in dims):
            yield dims
