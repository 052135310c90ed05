"""Experiments, their configuration, and the body of a submission."""

from __future__ import annotations

import math
import re
from typing import Literal

from pydantic import Field, FiniteFloat, field_validator

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import GivenParams, Record, Value
from kernel_backend.model.search.domains import Choices
from kernel_backend.model.search.records import Search
from kernel_backend.model.search.space import Space
from kernel_backend.model.states import ExperimentState
from kernel_backend.model.values import check_value

BackendChoice = Literal["auto", "horovod", "torch"]
LogAction = Literal["cancel_retries", "exclude_node"]
_DIGITS = 18  # of a whole number that is written out: it fits into 64 bits
_CADENCE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|epochs?|steps?)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh])?")
_SLOT_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(?:(?:gpu|slot)-?)?([smh])", re.IGNORECASE)
MOST_PRIORITY = 1000
LONGEST_NAME = 200  # characters of what an experiment is called
FIRST = 1_000_000  # given by an admin: from here on a priority is ahead of guarantees, and of whatever else waits
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Cadence(Record):
    """Interval of checkpoints or validations in seconds, epochs or steps; exactly one field is set."""

    seconds: float | None = None
    epochs: int | None = None
    steps: int | None = None


def parse_cadence(text: str) -> Cadence:
    """Read a cadence: `60s`, `10m`, `1epoch` or `500steps`; raises InvalidRequest with the text."""
    found = _CADENCE.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise InvalidRequest(f"{text!r} is no interval: write 60s, 10m, 1epoch or 500steps")
    amount, unit = found.groups()
    if unit in _SECONDS:
        return Cadence(seconds=float(amount) * _SECONDS[unit])
    if "." in amount or len(amount) > _DIGITS:
        raise InvalidRequest(f"{text[:50]!r} is no interval: {unit} are counted in whole numbers of {_DIGITS} digits")
    return Cadence(epochs=int(amount)) if unit.startswith("epoch") else Cadence(steps=int(amount))


def parse_duration(text: str) -> float:
    """Read seconds of `30s`, `10m` or `1h`; a bare number counts seconds. Raises InvalidRequest with the text."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise InvalidRequest(f"{text!r} is no length of time: write 30s, 10m or 1h")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def parse_slot_time(text: str) -> float:
    """Read seconds of one slot from `20gpuh`, `2slot-h` or `30m`; raises InvalidRequest with the text."""
    found = _SLOT_TIME.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise InvalidRequest(f"{text!r} is no time of slots: write 20gpuh, 2slot-h or 30m")
    return float(found[1]) * _SECONDS[found[2].lower()]


class Keep(Record):
    """Retention rules of a trial's checkpoints: their union is retained. `best_overall` counts over all trials."""

    best: int = Field(1, ge=0)
    latest: int = Field(2, ge=0)
    best_overall: int | None = Field(None, ge=0)


def parse_keep(text: str) -> Keep:
    """Read `best:1,latest:2` or `best_overall:3`; a rule that is not named retains none.

    Raises InvalidRequest with the text.
    """
    rules: dict[str, int] = {}
    for rule in text.split(","):
        name, _, count = rule.strip().partition(":")
        if name not in Keep.model_fields or not count.isdecimal() or len(count) > _DIGITS or name in rules:
            raise InvalidRequest(f"{text!r} is no rule of what to keep: write best:1,latest:2 or best_overall:3")
        rules[name] = int(count)
    if not any(rules.values()):
        raise InvalidRequest(f"{text!r} keeps nothing of what was trained: write best:1,latest:2 or best_overall:3")
    return Keep.model_validate({"best": 0, "latest": 0} | rules)


class Metric(Record):
    """The validation metric that ranks checkpoints."""

    name: str = "loss"
    mode: Literal["min", "max"] = "min"

    def lower(self, value: float) -> float:
        """Return the value, negated for mode `max`, so that lower is always better."""
        return -value if self.mode == "max" else value

    def better(self, value: float, than: float | None) -> bool:
        """Return whether `value` beats the best so far (None: there is none yet); NaN and infinity never do."""
        return math.isfinite(value) and (than is None or self.lower(value) < self.lower(than))


def parse_metric(text: str) -> Metric:
    """Read `loss`, `error:min` or `accuracy:max`; raises InvalidRequest with the text."""
    name, colon, mode = text.strip().partition(":")
    if not name or (colon and mode not in ("min", "max")):
        raise InvalidRequest(f"{text!r} is no metric: write loss, error:min or accuracy:max")
    return Metric(name=name, mode="max" if mode == "max" else "min")


class LogPolicy(Record):
    """Action for a failed attempt whose log has a line that matches `pattern` (a regular expression)."""

    pattern: str
    action: LogAction


LOG_POLICIES = (
    LogPolicy(pattern="CUDA out of memory", action="cancel_retries"),
    LogPolicy(pattern="ECC error", action="exclude_node"),
)

OnNan = Literal["fail", "go-on", "go_back"]


class Config(Record):
    """Configuration of a training that the platform owns: set by flags, never by the user's code."""

    # plain: a cell below %%dlrun; command: a program that is started as it is; functions: any other
    form: Literal["functions", "plain", "command"] = "functions"
    slots: int = Field(1, ge=1)
    pool: str | None = Field(None, min_length=1)  # None: the one there is, or that of the service's choice
    one_node: bool = False  # the gang is kept to one node
    group: str | None = Field(None, min_length=1)  # for which slots are asked; None: the owner's first
    priority: int = Field(0, ge=-MOST_PRIORITY, le=MOST_PRIORITY)  # as far as quotas allow it
    preemptible: bool = False  # it may pass those for whom slots are kept, and goes when these need its own
    max_time: float | None = Field(None, gt=0)  # seconds from an attempt's start on; then it is paused. Of no search
    backend: BackendChoice = "auto"
    device: Literal["auto", "cpu"] = "auto"  # auto: whatever the slots are
    threads: int | None = Field(None, ge=1)  # per slot; None until the service fixes it at submit
    logical_workers: int | None = Field(None, ge=1)  # None: as many as slots, and sums by the backend's ring
    epochs: int = Field(1, ge=1)
    steps: int | None = Field(None, ge=1)  # of the whole training, where given; `epochs` does not count then
    batch_size: int = Field(32, ge=1)  # global: over all slots
    schedule_per: Literal["step", "epoch"] = "step"
    amp: Literal["bf16", "fp16"] | None = None
    ema: float | None = Field(None, gt=0, lt=1)  # decay of the averaged weights, a step
    clip: float | None = Field(None, gt=0)  # the largest norm of the gradients
    gather_loss: bool = False  # the loss is computed over the global batch, not share by share
    strategy: Literal["ddp", "fsdp2"] | None = None  # how slots hold the model: all of it, or a part each; None: ddp
    sync_bn: bool = False  # BatchNorm has the statistics of the global batch
    accumulate: int | None = Field(None, ge=1)  # parts in which a slot computes its share of a batch; None: one
    compile: bool = False  # the models are compiled by torch.compile
    uneven: Literal["keep", "drop"] | None = None  # what becomes of a last batch with fewer samples; None: keep
    per_slot_batch: bool = False  # `batch_size` is that of a slot, not of all together
    validate_every: Cadence | None = None  # in epochs or steps; None: after each epoch
    validate_first: bool = False  # validate before the first step, too
    patience: int | None = Field(None, ge=1)  # end after so many validations in a row that are not the best
    loader_workers: int | None = Field(None, ge=0)  # per slot; None: by the kind of data
    seed: int = Field(0, ge=0, lt=2**63)
    rng: Literal["derived", "stream"] = "derived"
    reproducible: Literal["off", "host", "portable"] = "host"
    no_rehearsal: bool = False  # no restart of a program with a loop of its own is rehearsed
    weights_from: str | None = Field(None, pattern=r"\d+(\.\d+)?")  # a trial, with whose best weights it begins
    metric: Metric = Metric()  # what `best` means
    metric_pattern: tuple[str, ...] = ()  # regular expressions whose named groups are metrics in a command's log
    search: Search | None = None  # None: there is one trial
    checkpoint_every: Cadence | None = None  # None: adaptive
    keep: Keep = Keep()
    max_restarts: int = Field(5, ge=0)
    on_nan: OnNan = "fail"  # what losses do that are not finite; written stop, note and go_back
    hang_timeout: float = Field(600.0, gt=0)  # seconds without any progress
    on_log: tuple[LogPolicy, ...] = LOG_POLICIES
    env: Literal["current", "locked"] = "current"  # whose packages: the interpreter's own, or those of the lock
    until: int | None = Field(None, ge=1)  # end after this step, of a training that is meant to be longer
    data_at: dict[str, str] = {}  # declared data, as it was named -> where it is read instead: an absolute path or URL

    @property
    def as_it_is(self) -> bool:
        """Return whether code of the user's runs as it is, of whose length and epochs nothing is known."""
        return self.form in ("plain", "command")


class Submission(Record):
    """Body of `POST /api/experiments`: a stored snapshot and its configuration."""

    snapshot: str  # sha256 of the archive, uploaded before
    config: Config = Config()
    params: GivenParams = {}  # as given on the line; defaults come from the definition
    space: Space = Space()  # what is searched for, besides
    name: str | None = Field(None, max_length=LONGEST_NAME)
    python: str  # the interpreter that ranks run in (the kernel's own)
    cwd: str  # where relative paths of the cell lead
    notebook: str | None = None
    rerun_of: int | None = None  # the experiment whose snapshot this is
    again: bool = False  # make another one, though an equal one is active

    @field_validator("params")
    @classmethod
    def _kept(cls, params: dict[str, Value]) -> dict[str, Value]:
        for name, value in params.items():
            try:
                check_value(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return params

    @field_validator("space")
    @classmethod
    def _searchable(cls, space: Space) -> Space:
        for parameter in space.parameters:
            for choice in parameter.domain.values if isinstance(parameter.domain, Choices) else ():
                check_value(choice)
        return space


class ScheduledExperiment(Record):
    """Fields of an experiment that the scheduler reads; times are seconds since the epoch (UTC)."""

    number: int
    state: ExperimentState
    owner: str
    group: str
    snapshot: str
    config: Config
    python: str
    priority: int | None = None  # given by an admin: it counts instead of the configuration's, whatever quotas allow
    created_at: FiniteFloat


class Experiment(ScheduledExperiment):
    """An experiment: the trials and configuration that one submission created."""

    name: str
    params: dict[str, Value]  # all but those of the space; of one that does not always count its default
    space: Space = Space()
    cwd: str
    notebook: str | None
    rerun_of: int | None = None
    begins_from: str | None = None
    note: str = ""  # free text of the owner
    tags: tuple[str, ...] = ()
    ended_at: FiniteFloat | None = None
    deleted_at: FiniteFloat | None = None  # it can be brought back for a day
    purged_at: FiniteFloat | None = None  # its files and reports are gone
