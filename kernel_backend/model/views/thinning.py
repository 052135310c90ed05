"""Decide which training reports of an ended experiment can be removed without a visible change of its curves."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

MOST_KEPT = 1000  # training reports of each metric that stay: no chart shows more points


class Thinned(NamedTuple):
    """Number of training reports that were removed, and number of training reports before the removal."""

    removed: int
    of: int


def spare_reports(reports: Sequence[tuple[int, Collection[str]]], most: int) -> list[int]:
    """Return the sequence numbers of a trial's training reports that can be removed, in order.

    Of each metric, `most` evenly spaced reports stay, the first and the last among them, and all reports of a metric
    that has fewer. A trial with at most `most` reports per metric is left as it is, so that a second call removes
    nothing.

    Parameters
    ----------
    reports : sequence of (int, collection of str)
        Sequence number and metric names of each report, in the order of steps.
    most : int
        Reports of each metric that stay, >= 2.

    Examples
    --------
    >>> spare_reports([(seq, {"loss"}) for seq in range(1, 8)], most=3)
    [2, 3, 5, 6]
    >>> spare_reports([(1, {"loss"}), (4, {"loss"}), (7, {"loss"})], most=3)
    []
    """
    by_metric: dict[str, list[int]] = {}
    for seq, names in reports:
        for name in names:
            by_metric.setdefault(name, []).append(seq)
    if len(reports) <= most * len(by_metric):
        return []
    kept = {seq for seqs in by_metric.values() for seq in _evenly(seqs, most)}
    return [seq for seq, _ in reports if seq not in kept]


def _evenly(seqs: Sequence[int], most: int) -> Sequence[int]:
    if len(seqs) <= most:
        return seqs
    return [seqs[place * (len(seqs) - 1) // (most - 1)] for place in range(most)]
