"""Define the comparison of two experiments: their results, and their differences with the likeliest cause first."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernel_backend.model.experiment import LONGEST_NAME, LONGEST_NOTE, Config
from kernel_backend.model.record import GivenParams, Record

# In the order of display.
DifferenceKind = Literal[
    "code", "hyperparameters", "data", "environment", "seed", "hardware", "configuration", "weights", "daylight"
]


class Difference(Record):
    """Difference between two experiments; `text` gives the first experiment's value, then the second's."""

    kind: DifferenceKind
    name: str  # of the item that differs: a file, a hyperparameter, `delivered`, `packages`, `threads`
    text: str
    detail: tuple[str, ...] = ()  # lines of a unified diff, or file names
    harmless: bool = False  # it cannot change any bit of a result


class Results(Record):
    """Comparison of the results of two trainings: up to which step they are equal, and at which they first differ.

    `metrics` has the newest validation values of both.
    """

    identical: bool | None  # None: not enough data to decide
    text: str
    equal_to: int | None = None  # newest step up to which all values that both reported are equal
    parted_at: int | None = None  # first step with a different value
    metrics: dict[str, tuple[float | None, float | None]] = {}  # newest validation values of both


class Diff(Record):
    """Comparison of experiment `a` with experiment `b`."""

    a: int
    b: int
    differences: tuple[Difference, ...]
    unknown: tuple[str, ...] = ()  # items that could not be compared, since one experiment did not report them
    results: Results


class AttributionRow(Record):
    """One training in an attribution: experiment `a`, experiment `b`, or a rerun of `b` with some causes as in `a`."""

    label: str
    experiment: int | None  # None: it could not be run
    state: str
    value: float | None  # final value of the metric
    off: float | None  # difference from the baseline's value
    note: str = ""  # why it did not complete


class Attribution(Record):
    """Attribution of the difference between experiments `a` and `b` to its causes.

    Experiment `b` is rerun several times. Each rerun takes one more group of causes from `a` than the rerun before it:
    for example first the code, then the code and the seed.
    """

    a: int
    b: int
    metric: str
    rows: tuple[AttributionRow, ...]
    beyond: tuple[str, ...]  # differences that could not be restored
    results: Results | None  # comparison of the last row with the baseline


class HistoryEntry(Record):
    """Experiment in a history, with its differences from an earlier experiment.

    The earlier one is the experiment of which this one is a rerun, else the previous one of the same notebook or name.
    """

    number: int
    name: str
    state: str
    created_at: float  # seconds since the epoch
    before: int | None  # number of the compared experiment: the one that it reruns, else the previous one
    differences: tuple[Difference, ...]
    metrics: dict[str, float]


class Rerun(Record):
    """Body of `POST /api/experiments/N/rerun`: the changes to the configuration."""

    trial: int | None = Field(None, description="of a search, the trial that is trained alone")
    checkpoint: str | None = Field(None, description="train on from it: `newest`, `best`, a step, or a checkpoint's id")
    params: GivenParams = {}
    config: dict[str, object] = Field({}, description="fields of Config")
    python: str | None = None  # path of the interpreter; default: the earlier experiment's
    cwd: str | None = None
    name: str | None = Field(None, max_length=LONGEST_NAME)
    note: str = Field("", max_length=LONGEST_NOTE)
    tags: tuple[str, ...] = ()
    trust: str | None = Field(None, description="owner of the code, where that is not the caller")

    def applied(self, config: Config) -> Config:
        """Return the configuration with the requested changes; raises ValidationError if one is invalid."""
        return Config.model_validate({**config.model_dump(), **self.config})
