"""Define a search: its options and settings, and the events and decisions in its log.

The state of a search is computed by applying its `LogEntry` records in order.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, FiniteFloat

from kernel_backend.model.record import Record, Value
from kernel_backend.model.search import registry
from kernel_backend.model.search.methods import Sampler


def _with_known_methods(schema: dict[str, Any]) -> None:
    """Add the available methods to a JSON schema as examples; any text is valid, since packages come and go."""
    schema["examples"] = list(registry.names())


class Search(Record):
    """Options of a search. Options that do not apply to the search's method are refused."""

    method: str = Field("single", max_length=64, json_schema_extra=_with_known_methods)  # see `registry`
    trials: int | None = Field(None, ge=1)  # maximum; None: by the method, the budget or the time
    sampler: Sampler | None = None  # proposes new trials; None: the method's default
    stopping: bool = False  # trials that stop at a rung are never resumed
    eta: int = Field(4, ge=2)  # one of `eta` trials is promoted to the next rung
    first_rung: int | None = Field(None, ge=1)  # in units; None: R/256, at least 1
    brackets: Literal["aggressive", "standard", "conservative"] = "aggressive"
    population: int | None = Field(None, ge=2)  # size of the population of pbt
    interval: int | None = Field(None, ge=1)  # pbt: units between its rounds
    parallel: int | None = Field(None, ge=1)  # maximum number of trials that train at once
    budget: float | None = Field(None, gt=0)  # slot-seconds of all trials
    max_time: float | None = Field(None, gt=0)  # seconds since the submission
    keep_allocation: float | None = Field(None, ge=0)  # seconds; 0: a job for each trial; None: as the pool can
    source: str | None = None  # custom: name of the search class in the cell
    options: dict[str, Value] = {}  # options of the method only, by name
    warm: tuple[str, ...] = ()  # `12`: experiment with prior results; `12.7`: trial from whose checkpoint trials start

    @property
    def limit(self) -> int | None:
        """Return the maximum number of trials; None if the budget, `--max-time` or the method determines it."""
        return self.trials if self.ends_by_use else self.trials or self.default_trials

    @property
    def default_trials(self) -> int | None:
        """Return the method's default number of trials; None if the method computes it or is unknown."""
        found = registry.find(self.method)
        return found.trials if found is not None else None

    @property
    def samples_by(self) -> Sampler:
        """Return the sampler that proposes new trials."""
        found = registry.find(self.method)
        return self.sampler or (found.sampler if found is not None else "random")

    @property
    def learns(self) -> bool:
        """Return whether earlier results change the proposals of new trials."""
        found = registry.find(self.method)
        return (found is not None and found.learns) or self.samples_by not in ("random", "sobol")

    @property
    def ends_by_use(self) -> bool:
        """Return whether the search continues until its budget or time is used up."""
        return self.budget is not None or self.max_time is not None


class Settings(Search):
    """Settings from which a searcher is made: the options of the search, and the length of a training.

    Parameters
    ----------
    method : str, default "single"
        Name of the search method.
    trials : int, optional
        Maximum number of trials; by default the method's, or as many as the budget allows.
    sampler : str, optional
        Sampler that proposes new trials; default: that of the method.
    stopping : bool, default False
        True to stop a trial for good if it is not promoted at a rung (a training length at which trials are
        compared), instead of pausing it.
    eta : int, default 4
        One of `eta` trials continues from a rung to the next.
    first_rung : int, optional
        Length of the lowest rung, in units (epochs or steps); by default 1/256 of `units`, at least 1.
    brackets : {"aggressive", "standard", "conservative"}, default "aggressive"
        How early ASHA stops trials.
    population : int, optional
        Number of trials of population-based training.
    interval : int, optional
        Units between two rounds of population-based training.
    parallel : int, optional
        Maximum number of trials that train at once.
    budget : float, optional
        Slot-seconds that all trials together may use.
    max_time : float, optional
        Seconds after the submission at which the search ends.
    keep_allocation : float, optional
        Length in seconds of one job in a site's queue (such as Slurm's) in which trials run one after another; 0 if
        each trial has a job of its own.
    source : str, optional
        Name of the user's class, for the method ``custom``.
    options : dict of str to Any
        The method's own options. A factory finds a value for each of them.
    warm : tuple of str
        Earlier experiments whose results the search uses (``"12"``), or the trial from whose checkpoint all trials
        start (``"12.7"``).
    units : int
        Length of one complete training, in epochs or steps: the maximum resource R of ASHA.
    mode : {"min", "max"}, default "min"
        Whether lower or higher values of the metric are better.
    seed : int, default 0
        Seed of all that the search draws.

    Examples
    --------
    >>> from daylight.search import Settings
    >>> settings = Settings(method="asha", units=81)
    >>> settings.limit, settings.samples_by
    (64, 'kde')
    """

    units: int = Field(ge=1)  # R: epochs, or steps, of one complete training
    mode: Literal["min", "max"] = "min"  # mode of the metric
    seed: int = 0


# Decisions


class Create(Record):
    """Decision to create a trial that trains up to the end of unit `until`.

    Parameters
    ----------
    type : str, optional
        Always ``"create"``.
    trial : int
        Number of the trial, from 1.
    params : dict of str to Any
        Hyperparameters by name.
    until : int
        Unit (epoch or step) at whose end it pauses or ends.
    parent : int, optional
        Trial from whose newest checkpoint it starts.
    begins_from : str, optional
        Checkpoint of another experiment from which it starts.

    Examples
    --------
    >>> from daylight.search import Create
    >>> Create(trial=1, params={"lr": 0.1}, until=9).until
    9
    """

    type: Literal["create"] = "create"
    trial: int
    params: dict[str, Value]
    until: int
    parent: int | None = None  # trial whose newest checkpoint it continues from
    begins_from: str | None = None  # checkpoint of another experiment


class Resume(Record):
    """Decision to resume a paused trial, up to the end of unit `until`.

    Parameters
    ----------
    type : str, optional
        Always ``"resume"``.
    trial : int
        Number of the trial.
    until : int
        Unit (epoch or step) at whose end it pauses or ends.

    Examples
    --------
    >>> from daylight.search import Resume
    >>> Resume(trial=1, until=27).trial
    1
    """

    type: Literal["resume"] = "resume"
    trial: int
    until: int


class Continue(Record):
    """Decision to continue a running trial on its slots, up to the end of unit `until`.

    Parameters
    ----------
    type : str, optional
        Always ``"continue"``.
    until : int
        Unit (epoch or step) at whose end it pauses or ends.

    Examples
    --------
    >>> from daylight.search import Continue
    >>> Continue(until=27).until
    27
    """

    type: Literal["continue"] = "continue"
    until: int


class Pause(Record):
    """Decision to pause a trial: it releases its slots and may be resumed.

    Parameters
    ----------
    type : str, optional
        Always ``"pause"``.

    Examples
    --------
    >>> from daylight.search import Pause
    >>> Pause().type
    'pause'
    """

    type: Literal["pause"] = "pause"


class Prune(Record):
    """Decision to end a trial early and for good.

    Parameters
    ----------
    type : str, optional
        Always ``"prune"``.

    Examples
    --------
    >>> from daylight.search import Prune
    >>> Prune().type
    'prune'
    """

    type: Literal["prune"] = "prune"


class Complete(Record):
    """Decision to complete a trial, which has reached the end of its training.

    Parameters
    ----------
    type : str, optional
        Always ``"complete"``.

    Examples
    --------
    >>> from daylight.search import Complete
    >>> Complete().type
    'complete'
    """

    type: Literal["complete"] = "complete"


Granted = Create | Resume
Verdict = Continue | Pause | Prune | Complete
Decision = Annotated[Granted | Verdict, Field(discriminator="type")]


# Events


class Vacancy(Record):
    """Event: the scheduler granted a gang (slots) to the search, which may then create or resume a trial on it."""

    type: Literal["vacancy"] = "vacancy"


class Reported(Record):
    """Event: a trial reported its metric at the end of a unit (epoch or step).

    The value is the reported one; it is not negated for a metric that is maximised.
    """

    type: Literal["reported"] = "reported"
    trial: int
    unit: int
    value: float
    seq: int = 0  # number of the report; those after it have not been processed yet


Reason = Literal["failed", "invalid", "pruned", "stopped"]


class Exited(Record):
    """Event: a trial ended early, by an error, invalid hyperparameters or a user."""

    type: Literal["exited"] = "exited"
    trial: int
    reason: Reason


class ParamsAssigned(Record):
    """Event: the search learned a trial's actual hyperparameters, which may differ from those that it proposed.

    Trials of earlier searches whose results this search uses are recorded in the same way, with numbers below 1.
    """

    type: Literal["told"] = "told"
    trial: int
    params: dict[str, Value]


class Promoted(Record):
    """Event: a user lets a trial train on to its next rung (training length), however it compares with others."""

    type: Literal["promoted"] = "promoted"
    trial: int


class Followed(Record):
    """Event: a training that an evaluation follows has committed `checkpoint`; None: it commits no more."""

    type: Literal["followed"] = "followed"
    checkpoint: str | None = None  # as 12.3/500-2


class Extended(Record):
    """Event: a user raised the limits of the search, which creates trials again if it was closed.

    `trials` is the new maximum number of trials in total; None: as many as the budget allows.
    """

    type: Literal["extended"] = "extended"
    trials: int | None


Limit = Literal["budget", "max_time"]


class Closed(Record):
    """Event: a limit (trials, budget or time) is used up, so that the search creates no more trials."""

    type: Literal["closed"] = "closed"
    limit: Limit


class Failed(Record):
    """Event: the search fails, because the user's `prepare` function or search class did.

    The class raised an exception, timed out, or returned an invalid decision.
    """

    type: Literal["failed"] = "failed"
    message: str


Happening = Annotated[
    Vacancy | Reported | Exited | ParamsAssigned | Promoted | Followed | Extended | Closed | Failed,
    Field(discriminator="type"),
]


class LogEntry(Record):
    """Entry of a search's log: an event, and the decision that followed. Entries are numbered from 1."""

    number: int
    at: FiniteFloat
    event: Happening
    decision: Decision | None = None

    @property
    def trial(self) -> int | None:
        """Return the trial that the entry is about.

        None if a granted gang was assigned to no trial, and for an event that concerns all trials.
        """
        about = self.decision if isinstance(self.decision, Create | Resume) else self.event
        return getattr(about, "trial", None)


class LoggedReport(NamedTuple):
    """Log entry of a report, reduced to the fields that a search's history needs, as there may be a million entries.

    `until` is the trial's new target, None if the decision on the report sets none.
    """

    number: int
    at: float
    trial: int
    unit: int
    value: float
    until: int | None
