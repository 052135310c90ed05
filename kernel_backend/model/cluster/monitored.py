"""Define the metrics that monitoring systems read from a service, in the terms of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from kernel_backend.model.trial import Trial


class Family(NamedTuple):
    """Metric of the service as Prometheus reads it, with one sample for each combination of label values."""

    name: str  # without the suffix `_total` of counters
    kind: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...]
    samples: Sequence[tuple[tuple[str, ...], float]]


class StoreCounts(NamedTuple):
    """Numbers of experiments and of ended attempts in the store, and the trials that hold slots."""

    experiments: Mapping[str, int]  # by state, without deleted ones
    outcomes: Mapping[str, int]  # of ended attempts
    training: Sequence[Trial]  # those that hold slots, the oldest experiments first, up to a limit
