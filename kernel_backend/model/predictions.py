"""Describe predictions: shards of rows, each an artifact whose name says which rows it has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from kernel_backend.model.record import Record

ROW, OUTPUT = "row", "output"  # columns: the number of the row, and the outputs if they have no names
ABOUT = "daylight"  # key of a shard's metadata
SUMMARY = "predictions.json"  # artifact that is written when all rows are predicted
MOST_SHARD_BATCHES, USUAL_SHARDS = 256, 16
_NAME = re.compile(r"rows-(\d{12})-(\d{12})\.safetensors")


class BadRow(Record):
    """Row whose prediction raised an error, which is left out of the columns."""

    row: int
    error: str


class ShardAbout(Record):
    """Description in a shard's file: its rows, from `first` up to `end`, and its columns."""

    first: int
    end: int
    model: str  # the checkpoint, as 12.1/500-2
    columns: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()  # columns of text, each as a JSON list in bytes
    bad: tuple[BadRow, ...] = ()
    digest: str = ""  # of the tensors


class Summary(Record):
    """Description of all predictions of an experiment, once they are complete."""

    rows: int
    shard_rows: int
    model: str
    bad: int = 0


class Shard(NamedTuple):
    """Rows from `first` up to, but without, `end`."""

    first: int
    end: int

    @property
    def name(self) -> str:
        """Return the name of the shard's artifact; names are in the order of the rows."""
        return f"rows-{self.first:012}-{self.end:012}.safetensors"


def parse_shard(name: str) -> Shard | None:
    """Return the shard that an artifact's name says; None for other artifacts.

    Examples
    --------
    >>> parse_shard(Shard(0, 256).name)
    Shard(first=0, end=256)
    """
    found = _NAME.fullmatch(name)
    return None if found is None else Shard(int(found[1]), int(found[2]))


def shard_rows(rows: int, batch_size: int, given: int = 0) -> int:
    """Return how many rows a shard has: the `given` number, or whole batches.

    It does not depend on the number of slots. Few rows are cut into 16 shards, so that several slots have work; many
    into shards of 256 batches, so that a restart repeats little and storing a shard costs little.
    """
    if given > 0:
        return given
    batches = -(-rows // batch_size)
    return batch_size * max(1, min(MOST_SHARD_BATCHES, -(-batches // USUAL_SHARDS)))


def shards_of(rows: int, size: int) -> list[Shard]:
    """Return the shards of `rows` rows, `size` rows each but the last."""
    return [Shard(first, min(rows, first + size)) for first in range(0, rows, size)]


def missing_rows(found: Iterable[Shard], rows: int) -> list[Shard]:
    """Return the ranges of rows that no shard has.

    Examples
    --------
    >>> missing_rows([Shard(0, 10), Shard(20, 30)], 40)
    [Shard(first=10, end=20), Shard(first=30, end=40)]
    """
    missing, reached = [], 0
    for each in sorted(found):
        if each.first > reached:
            missing.append(Shard(reached, each.first))
        reached = max(reached, each.end)
    return [*missing, Shard(reached, rows)] if reached < rows else missing
