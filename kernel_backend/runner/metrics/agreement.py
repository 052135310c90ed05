"""Compare a validation batch across ranks, so that either all ranks raise an error or none does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.metrics.join import row_shapes
from kernel_backend.runner.ranks.backends import Ranks

Kind = Literal["unknown", "per sample", "whole"]  # kind of values that `metrics` returns, as far as a rank knows
Shape = tuple[int, ...]


class _Report(NamedTuple):
    """Message of one rank about a validation batch: kind of metric values, shapes of its data, and its error if any."""

    kind: Kind
    numbers: list[str]  # names of values that are not one per sample
    shapes: list[dict[str, Shape]]  # by share
    refusal: str | None


class _Found(NamedTuple):
    shape: Shape
    batch: int
    rank: int


class Agreement:
    """Comparison of each validation batch over all ranks, so that an error on one rank is raised on all ranks.

    If one rank alone raised an error, the others would wait for that rank in the next collective operation.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.joins = True  # False once a rank has found values per sample
        self.numbers: list[str] = []  # names of values that are not one per sample, over all ranks
        self.difference: str | None = None  # description of the first difference between two row shapes
        self._ranks = ranks
        self._shapes: list[dict[str, Shape]] = []  # of the current batch
        self._first: dict[str, _Found] = {}
        self._refusal: InvalidDefinition | None = None

    @property
    def refused(self) -> bool:
        """Return True if this rank has an error for the current batch."""
        return self._refusal is not None

    def refuse(self, error: InvalidDefinition) -> None:
        """Record an error of this rank; `compare` raises it on all ranks at the end of the batch."""
        self._refusal = error

    def add(self, values: Mapping[str, Any], samples: int) -> None:
        """Record the row shapes of the values in one share (part) of the current batch, to compare them over the ranks.

        `values` are the arguments of `metrics` by name, and `samples` is the number of samples in the share.
        """
        self._shapes.append({k: shape for name in values for k, shape in row_shapes(values[name], samples, name)})

    def compare(self, batch: int, kind: Kind, numbers: list[str]) -> set[Kind]:
        """Exchange what all ranks have recorded about a batch; return the kinds of metric values that any rank has.

        A kind says whether the user's `metrics` returns one value per sample or a single number. `batch` is the batch's
        number; `kind` is what this rank has seen, and `numbers` are the names of its single numbers. Raises
        InvalidDefinition, on all ranks, if a rank has an error or if kinds differ. Row shapes that differ are described
        in `difference`.
        """
        refusal = self._refusal.message if self._refusal is not None else None
        reports = self._ranks.all_gather_object(_Report(kind, numbers, self._shapes, refusal))
        self._shapes = []
        refusals = [report.refusal for report in reports if report.refusal is not None]
        if refusals:
            raise InvalidDefinition(refusals[0]) from self._refusal
        kinds = {report.kind for report in reports}
        self.numbers = sorted({name for report in reports for name in report.numbers})
        if kinds >= {"per sample", "whole"}:
            raise InvalidDefinition(
                f"metrics() returned a number for {', '.join(self.numbers)} on some batches, and one value per sample "
                "on others: return one or the other"
            )
        for rank, report in enumerate(reports):
            for name, shape in (each for shapes in report.shapes for each in shapes.items()):
                self._compare_shape(name, _Found(shape, batch, rank))
        self.joins = "per sample" not in kinds
        return kinds

    def _compare_shape(self, name: str, found: _Found) -> None:
        first = self._first.setdefault(name, found)
        if self.difference is None and first.shape[1:] != found.shape[1:]:
            one, other = self._described(first), self._described(found)
            self.difference = f"batches of {name} differ in shape, {one} and {other}"

    def _described(self, found: _Found) -> str:
        where = f" on rank {found.rank}" if self._ranks.size > 1 else ""
        return f"{found.shape} in batch {found.batch + 1}{where}"
