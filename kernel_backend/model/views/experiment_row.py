"""Define the rows of the table of experiments: what is sorted and filtered, without trials, attempts and notes."""

from __future__ import annotations

from pydantic import FiniteFloat

from kernel_backend.model.experiment import Metric
from kernel_backend.model.record import Record, Value


class ExperimentRow(Record):
    """Row of the table of experiments; of a search, parameters and metrics are those of its best trial."""

    number: int
    name: str
    state: str  # as its overview shows it
    standing: str  # the state in words, with the reason: `failed: ValueError`
    result: str  # the number of the experiment in words: `accuracy 0.9697 best, epoch 6`
    created_at: FiniteFloat
    started_at: FiniteFloat | None = None  # when it first held slots
    seconds: FiniteFloat = 0.0  # during which it has held slots
    tags: tuple[str, ...] = ()
    notebook: str | None = None
    params: dict[str, Value] = {}
    metric: Metric
    best: FiniteFloat | None = None  # best value of `metric`
    metrics: dict[str, float] = {}  # newest validation values


class ExperimentTable(Record):
    """Page of the table of experiments, newest first.

    `seq` is the number of the newest message that it includes: a request `after` it returns what has changed since.
    """

    rows: tuple[ExperimentRow, ...]
    seq: int
