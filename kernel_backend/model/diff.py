"""Compare two experiments: what differs, the likeliest cause first, and the results."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernel_backend.model.experiment import LONGEST_NAME, Config
from kernel_backend.model.record import GivenParams, Record

# In the order in which they are told.
DifferenceKind = Literal[
    "code", "hyperparameters", "data", "environment", "seed", "hardware", "configuration", "weights", "daylight"
]


class Difference(Record):
    """A difference: a sentence with the first experiment's value before the second's."""

    kind: DifferenceKind
    name: str  # of what differs: a file, a hyperparameter, `delivered`, `packages`, `threads`
    text: str
    detail: tuple[str, ...] = ()  # lines: a unified diff, names of files
    harmless: bool = False  # it changes no bit of a result


class Results(Record):
    """Comparison of the results of two trainings: the last equal step, the first different one, and final metrics."""

    identical: bool | None  # None: not enough is known
    text: str
    equal_to: int | None = None  # the newest step at which everything that both told was equal
    parted_at: int | None = None  # the first one at which something was not
    metrics: dict[str, tuple[float | None, float | None]] = {}  # newest validation of each


class Diff(Record):
    """Comparison of experiment `a` with experiment `b`."""

    a: int
    b: int
    differences: tuple[Difference, ...]
    unknown: tuple[str, ...] = ()  # what could not be compared, since one has not told it
    results: Results


class AttributionRow(Record):
    """A training of an attribution: the baseline, the deviating experiment, or a rerun with some causes restored."""

    label: str
    experiment: int | None  # None: it could not be trained
    state: str
    value: float | None  # of the metric, at its end
    off: float | None  # from the baseline
    note: str = ""  # why it did not come to its end


class Attribution(Record):
    """Attribution of the difference between two experiments to groups of causes, restored one after the other."""

    a: int
    b: int
    metric: str
    rows: tuple[AttributionRow, ...]
    beyond: tuple[str, ...]  # what could not be restored
    results: Results | None  # the last row compared with the baseline


class HistoryEntry(Record):
    """An experiment, with its differences from the one it reruns, else the previous one of its notebook or name."""

    number: int
    name: str
    state: str
    created_at: float  # seconds since the epoch
    before: int | None  # what it is compared with: the experiment that it is a rerun of, else the one before
    differences: tuple[Difference, ...]
    metrics: dict[str, float]


class Rerun(Record):
    """Body of `POST /api/experiments/N/rerun`: the changes to the configuration."""

    trial: int | None = Field(None, description="of a search, the trial that is trained alone")
    checkpoint: str | None = Field(None, description="train on from it: `newest`, `best`, a step, or a checkpoint's id")
    params: GivenParams = {}
    config: dict[str, object] = Field({}, description="fields of Config")
    python: str | None = None  # the interpreter; by default that of then
    cwd: str | None = None
    name: str | None = Field(None, max_length=LONGEST_NAME)
    trust: str | None = Field(None, description="owner of the code, where that is not the caller")

    def applied(self, config: Config) -> Config:
        """Return the configuration with the requested changes; raises ValidationError."""
        return Config.model_validate({**config.model_dump(), **self.config})
