"""Define experiments, their configuration, and the body of a submission."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Literal, TypeVar

from pydantic import Field, FiniteFloat, PositiveInt, field_validator

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import GivenParams, Record, Value
from kernel_backend.model.search.domains import Choices
from kernel_backend.model.search.methods import CHECKPOINTS
from kernel_backend.model.search.records import Search
from kernel_backend.model.search.space import Space
from kernel_backend.model.states import ExperimentState
from kernel_backend.model.values import check_value, cleaned

_T = TypeVar("_T")
BackendChoice = Literal["auto", "horovod", "torch"]
LogAction = Literal["cancel_retries", "exclude_node"]
_DIGITS = 18  # most digits of an integer: it fits into 64 bits
_CADENCE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|epochs?|steps?)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh])?")
_SLOT_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(?:(?:gpu|slot)-?)?([smh])", re.IGNORECASE)
MOST_PRIORITY = 1000
LONGEST_NAME = 200  # characters of an experiment's name
LONGEST_NOTE = 4000  # characters
LONGEST_PATH = 4096
FIRST = 1_000_000  # priorities from here on are set by admins, and precede everything, including guarantees
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Cadence(Record):
    """Interval of checkpoints or validations in seconds, epochs or steps; exactly one field is set."""

    seconds: float | None = None
    epochs: int | None = None
    steps: int | None = None


def parse_cadence(text: str) -> Cadence:
    """Parse `60s`, `10m`, `1epoch` or `500steps`; raises InvalidRequest for any other text."""
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
    """Parse `30s`, `10m`, `1h` or a number of seconds into seconds; raises InvalidRequest for any other text."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise InvalidRequest(f"{text!r} is no length of time: write 30s, 10m or 1h")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def parse_slot_time(text: str) -> float:
    """Parse a budget of slot time into slot-seconds; raises InvalidRequest for an invalid text.

    `20gpuh` are 20 hours of one slot, `2slot-h` 2 hours, `30m` 30 minutes.
    """
    found = _SLOT_TIME.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise InvalidRequest(f"{text!r} is no time of slots: write 20gpuh, 2slot-h or 30m")
    return float(found[1]) * _SECONDS[found[2].lower()]


class Keep(Record):
    """Retention rules for a trial's checkpoints; those that any rule selects are retained.

    `best_overall` ranks the checkpoints of all trials of the experiment together.
    """

    best: int = Field(1, ge=0)
    latest: int = Field(2, ge=0)
    best_overall: int | None = Field(None, ge=0)


def parse_keep(text: str) -> Keep:
    """Parse `best:1,latest:2` or `best_overall:3`; a rule that is not named retains no checkpoint.

    Raises InvalidRequest for any other text.
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
    """Validation metric that ranks checkpoints and trials."""

    name: str = "loss"
    mode: Literal["min", "max"] = "min"

    def lower(self, value: float) -> float:
        """Return a value of the metric in a form in which lower is always better: negated for mode `max`."""
        return -value if self.mode == "max" else value

    def better(self, value: float, than: float | None) -> bool:
        """Return whether `value` is finite and better than `than`, the best value so far (None: there is none)."""
        return math.isfinite(value) and (than is None or self.lower(value) < self.lower(than))

    def spelled(self, values: Mapping[str, _T]) -> dict[str, _T]:
        """Return `values`, with this metric's name for one that differs from it in case or in signs such as spaces."""
        if self.name in values:
            return dict(values)
        own = cleaned(self.name)
        return {self.name if cleaned(name) == own else name: value for name, value in values.items()}

    def of(self, values: Mapping[str, float]) -> float | None:
        """Return the metric's value among `values`, however its name is spelled there; None if it is missing."""
        return self.spelled(values).get(self.name)

    def cost(self, values: Mapping[str, float]) -> float:
        """Return the metric's value among `values` as `lower` does; infinity if it is missing or not finite."""
        value = self.of(values)
        return self.lower(value) if value is not None and math.isfinite(value) else math.inf

    def as_argument(self) -> str:
        """Return the metric as an argument of a call, such as `f1=...`, for messages."""
        return f"{self.name}=..." if self.name.isidentifier() else f"**{{{self.name!r}: ...}}"


def parse_metric(text: str) -> Metric:
    """Parse `loss`, `error:min` or `accuracy:max`; raises InvalidRequest for any other text.

    A range may stand in the name, as in `mAP@0.5:0.95` and `mAP@0.5:0.95:max`.
    """
    name, colon, mode = text.strip().rpartition(":")
    if not colon or (name and mode.replace(".", "").isdecimal()):
        name, colon, mode = text.strip(), "", ""
    if not name or (colon and mode not in ("min", "max")):
        raise InvalidRequest(f"{text!r} is no metric: write loss, error:min or accuracy:max")
    return Metric(name=name, mode="max" if mode == "max" else "min")


class LogPolicy(Record):
    """User's rule on failures: the action on a failed attempt if a line of its log matches `pattern`.

    The pattern is a regular expression.
    """

    pattern: str
    action: LogAction


LOG_POLICIES = (
    LogPolicy(pattern="CUDA out of memory", action="cancel_retries"),
    LogPolicy(pattern="ECC error", action="exclude_node"),
)

OnNan = Literal["fail", "go-on", "go_back"]


class AutoBatch(Record):
    """Request to find the largest batch size that fits into memory before the training, as by `--batch-size auto`."""

    most: int | None = Field(None, ge=1)  # largest size to try, counted as `batch_size` is


class Config(Record):
    """Configuration of a training: the options of its submission, and settings that the user's code implies."""

    # plain: a cell below %%dlrun; command: a program that is run unchanged; prediction, evaluation: rows that a
    # trained model predicts, or on which it is measured; functions: any other
    form: Literal["functions", "plain", "command", "prediction", "evaluation"] = "functions"
    slots: int = Field(1, ge=1)
    least_slots: int | None = Field(
        None, ge=1
    )  # of an elastic training, which has up to `slots` slots; None: not elastic
    pool: str | None = Field(None, min_length=1)  # or several, as gpu,cloud; None: the service's default pool
    one_node: bool = False  # place the gang on a single node
    group: str | None = Field(None, min_length=1)  # group that requests the slots; None: the owner's default group
    priority: int = Field(0, ge=-MOST_PRIORITY, le=MOST_PRIORITY)  # as far as quotas allow
    preemptible: bool = False  # may start ahead of reservations, and is preempted when they need its slots
    max_time: float | None = Field(None, gt=0)  # seconds from an attempt's start until it is paused; not for searches
    backend: BackendChoice = "auto"
    device: Literal["auto", "cpu"] = "auto"  # auto: the kind of the slots
    threads: int | None = Field(None, ge=1)  # per slot; None: chosen by the service at submission
    logical_workers: int | None = Field(None, ge=1)  # None: one per slot, and sums in the backend's own order
    epochs: int = Field(1, ge=1)
    epochs_unknown: bool = False  # the source of a program does not show its number of epochs; `epochs` is then 1
    steps: int | None = Field(None, ge=1)  # length of the training; if set, `epochs` is ignored
    batch_size: int = Field(32, ge=1)  # global, over all slots
    auto_batch: AutoBatch | None = None  # find the size before the training; `batch_size` then has no meaning
    schedule_per: Literal["step", "epoch"] = "step"
    amp: Literal["bf16", "fp16"] | None = None
    ema: float | None = Field(None, gt=0, lt=1)  # decay per step of the averaged weights
    clip: float | None = Field(None, gt=0)  # maximum norm of the gradients
    gather_loss: bool = False  # compute the loss over the global batch, not per slot
    strategy: Literal["ddp", "fsdp2"] | None = None  # replicate the model on each slot, or shard it; None: ddp
    sync_bn: bool = False  # BatchNorm uses the statistics of the global batch
    accumulate: int | None = Field(None, ge=1)  # micro-batches per step and slot; None: one
    compile: bool = False  # compile the models by torch.compile
    uneven: Literal["keep", "drop"] | None = None  # treatment of a smaller last batch; None: keep
    per_slot_batch: bool = False  # `batch_size` is per slot, not global
    validate_every: Cadence | None = None  # epochs or steps; None: after each epoch
    validate_first: bool = False  # also validate before the first step
    patience: int | None = Field(None, ge=1)  # stop after this many validations in a row without a new best
    # Validations come from an evaluation that follows the training: a search and `patience` wait for them.
    await_evaluation: bool = False
    loader_workers: int | None = Field(None, ge=0)  # per slot; None: depends on the kind of data
    seed: int = Field(0, ge=0, lt=2**63)
    rng: Literal["derived", "stream"] = "derived"
    reproducible: Literal["off", "host", "portable"] = "host"
    rehearse: bool = True  # rehearse a restart of a program that has its own training loop, while it trains
    # What the cell of a notebook gives back: its values, with rng the random generators, too. A number: up to so many
    # bytes. None: on.
    values: Literal["on", "rng", "off"] | PositiveInt | None = None
    # Trial from whose best weights training starts; in a submission also a version of a model, such as memes@3.
    weights_from: str | None = Field(None, pattern=r"^\d+(\.\d+)?(@\d+)?$|^([^/\s]+/)?[A-Za-z][A-Za-z0-9._@-]*$")
    metric: Metric = Metric()  # defines which checkpoint is best
    metric_pattern: tuple[str, ...] = ()  # regular expressions whose named groups extract metrics from a command's log
    search: Search | None = None  # None: a single trial
    checkpoint_every: Cadence | None = None  # None: adaptive
    keep: Keep = Keep()
    max_restarts: int = Field(5, ge=0)
    on_nan: OnNan = "fail"  # reaction to a loss that is not finite; users write stop, note or go_back
    hang_timeout: float = Field(600.0, gt=0)  # seconds without any progress of a rank
    on_log: tuple[LogPolicy, ...] = LOG_POLICIES
    env: Literal["current", "locked"] = "current"  # Python packages: the interpreter's, or those of the lock
    until: int | None = Field(None, ge=1)  # stop after this step of a longer training
    fetch: Literal["auto", "before", "during"] = "auto"  # when inputs are brought to a node: before the training
    data_at: dict[str, str] = {}  # declared data: name -> absolute path or URL to read instead

    @field_validator("pool")
    @classmethod
    def _each_once(cls, pool: str | None) -> str | None:
        """Return the names of pools, such as `gpu,cloud`, without spaces and repetitions; None if none is given.

        Raises ValueError for an empty name.
        """
        names = [] if pool is None else [name.strip() for name in pool.split(",")]
        if not all(names):
            raise ValueError("name a pool, or several as gpu,cloud: the first that can start it runs it")
        return ",".join(dict.fromkeys(names)) or None

    @property
    def pools(self) -> tuple[str, ...]:
        """Return the pools in which the experiment may train, preferred first; empty for the service's default pool."""
        return () if self.pool is None else tuple(self.pool.split(","))

    @property
    def known_epochs(self) -> int | None:
        """Return the number of epochs to train; None if only the user's program decides when it ends."""
        return None if self.epochs_unknown else self.epochs

    @property
    def slot_range(self) -> str:
        """Return the number of slots as users write it: `4`, or `1..4` for an elastic training."""
        return str(self.slots) if self.least_slots is None else f"{self.least_slots}..{self.slots}"

    def with_batch_size(self, size: int) -> Config:
        """Return the configuration with this batch size, which `--batch-size auto` has found."""
        return self.model_copy(update={"batch_size": size, "auto_batch": None})

    @property
    def as_it_is(self) -> bool:
        """Return whether the user's code runs unchanged as a script, so that its number of epochs is unknown."""
        return self.form in ("plain", "command")

    @property
    def uses_model(self) -> bool:
        """Return whether nothing is trained: a trained model predicts rows, or is measured on them."""
        return self.form in ("prediction", "evaluation")

    @property
    def search_needs_validations(self) -> bool:
        """Return whether a search compares validations that the training itself must report."""
        return self.search is not None and not self.follows and not self.await_evaluation

    @property
    def needs_validations(self) -> bool:
        """Return whether a search or `--patience` goes by validations that the training itself must report."""
        return self.search_needs_validations or (self.patience is not None and not self.await_evaluation)

    @property
    def follows(self) -> bool:
        """Return whether it measures checkpoints of the training that `weights_from` names, in a trial for each."""
        return self.search is not None and self.search.method == CHECKPOINTS.name

    @property
    def records(self) -> bool:
        """Return whether that training gets the values, while it goes on."""
        return self.follows and self.search is not None and bool(self.search.options.get("follow"))


class Submission(Record):
    """Body of `POST /api/experiments`: the id of a stored snapshot, and the configuration."""

    snapshot: str  # sha256 of an archive that was uploaded before
    config: Config = Config()
    params: GivenParams = {}  # values set on the magic line; others have the definition's defaults
    space: Space = Space()  # hyperparameters to search
    name: str | None = Field(None, max_length=LONGEST_NAME)
    python: str = Field(max_length=LONGEST_PATH)  # the interpreter of the ranks (the kernel's own)
    cwd: str = Field(max_length=LONGEST_PATH)  # folder for relative paths in the cell
    notebook: str | None = Field(None, max_length=LONGEST_PATH)
    rerun_of: int | None = None  # experiment that has the same snapshot
    note: str = Field("", max_length=LONGEST_NOTE)
    tags: tuple[str, ...] = ()
    again: bool = False  # create a new experiment even if an equal one is active

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
    """Fields of an experiment that the scheduler needs; times are in seconds since the epoch (UTC)."""

    number: int
    state: ExperimentState
    owner: str
    group: str
    snapshot: str
    config: Config
    python: str
    priority: int | None = None  # set by an admin: replaces the configuration's priority, regardless of quotas
    created_at: FiniteFloat


class Experiment(ScheduledExperiment):
    """Experiment: the trials and the configuration of one submission."""

    name: str
    params: dict[str, Value]  # values of parameters that are not searched; the default of a conditional one
    space: Space = Space()
    cwd: str
    notebook: str | None
    rerun_of: int | None = None
    begins_from: str | None = None
    note: str = ""  # free text of the owner
    tags: tuple[str, ...] = ()
    ended_at: FiniteFloat | None = None
    deleted_at: FiniteFloat | None = None  # seconds since the epoch; it can be restored for a day
    purged_at: FiniteFloat | None = None  # seconds since the epoch; its files and reports have been removed
