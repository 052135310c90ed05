"""Define a search: its options, its settings, its events and its decisions.

Events and decisions form one log, `LogEntry` by `LogEntry`; a search's state is the fold of it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from kernel_backend.model.record import Record, Value
from kernel_backend.model.search import registry
from kernel_backend.model.search.methods import Sampler


def _with_known_methods(schema: dict[str, Any]) -> None:
    """List the available methods in the schema. Any text is accepted, since a package may have been removed."""
    schema["examples"] = list(registry.names())


class Search(Record):
    """Options of a search. Those that do not apply to the method are refused if given."""

    method: str = Field("single", max_length=64, json_schema_extra=_with_known_methods)  # see `search_registry`
    trials: int | None = Field(None, ge=1)  # at most so many; None: as the method or the budget has it
    sampler: Sampler | None = None  # what gives a new trial its values; None: as the method has it
    stopping: bool = False  # trials are stopped at rungs, and never resumed
    eta: int = Field(4, ge=2)  # one of so many goes on to the next rung
    first_rung: int | None = Field(None, ge=1)  # in units; None: R/256, at least 1
    brackets: Literal["aggressive", "standard", "conservative"] = "aggressive"
    population: int | None = Field(None, ge=2)  # of pbt
    interval: int | None = Field(None, ge=1)  # of pbt: units between its rounds
    parallel: int | None = Field(None, ge=1)  # trials that train at once, at most
    budget: float | None = Field(None, gt=0)  # slot seconds in all
    max_time: float | None = Field(None, gt=0)  # seconds from the submission on
    source: str | None = None  # of custom: the name of the class in the cell
    options: dict[str, Value] = {}  # the method's own, by name
    warm: tuple[str, ...] = ()  # experiments `12` whose results it knows, or a checkpoint `12.7` that trials begin from

    @property
    def limit(self) -> int | None:
        """Return the maximum number of trials; None: as many as the budget, the time or the method allows."""
        return self.trials if self.ends_by_use else self.trials or self.default_trials

    @property
    def default_trials(self) -> int | None:
        """Return the method's default number of trials; None if it computes its own number, or is unknown."""
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
    """Hold all that a searcher is made from: the options of the search, and the length of a training.

    Parameters
    ----------
    method : str, default "single"
        Name of the search method.
    trials : int, optional
        Number of trials at most; by default as the method or the budget has it.
    sampler : str, optional
        What proposes new trials; by default as the method has it.
    stopping : bool, default False
        Whether trials are stopped at rungs for good, instead of paused.
    eta : int, default 4
        One of `eta` trials continues from a rung to the next.
    first_rung : int, optional
        Units of the lowest rung; by default 1/256 of `units`, at least 1.
    brackets : {"aggressive", "standard", "conservative"}, default "aggressive"
        How early ASHA stops trials.
    population : int, optional
        Number of trials of population-based training.
    interval : int, optional
        Units between two rounds of population-based training.
    parallel : int, optional
        Number of trials that train at once, at most.
    budget : float, optional
        Slot seconds of all trials together.
    max_time : float, optional
        Seconds from the submission on.
    source : str, optional
        Name of the user's class, for the method ``custom``.
    options : dict of str to Any
        The method's own options. A factory finds a value for each of them.
    warm : tuple of str
        Experiments whose results are known (``"12"``), or a checkpoint to begin from (``"12.7"``).
    units : int
        Length of a whole training, in epochs or steps: the maximum resource R of ASHA.
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

    units: int = Field(ge=1)  # R: the epochs, or steps, of one whole training
    mode: Literal["min", "max"] = "min"  # of the metric
    seed: int = 0


# What is decided


class Create(Record):
    """Create a trial that trains up to the end of unit `until`.

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
    parent: int | None = None  # the trial whose newest checkpoint it begins from, and goes on


class Resume(Record):
    """Resume a paused trial, up to the end of unit `until`.

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
    """Continue a trial on its slots, up to the end of unit `until`.

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
    """Pause a trial: it releases its slots and may be resumed.

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
    """Prune a trial for good.

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
    """Complete a trial: it has reached the end of its training.

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


# What happens


class Vacancy(Record):
    """The scheduler granted a gang to the search, whose decision may assign it to a trial."""

    type: Literal["vacancy"] = "vacancy"


class Reported(Record):
    """The metric's value at the end of a unit, as reported (`metric:max` is not negated)."""

    type: Literal["reported"] = "reported"
    trial: int
    unit: int
    value: float
    seq: int = 0  # of the report: later ones have not been processed yet


Reason = Literal["failed", "invalid", "pruned", "stopped"]


class Exited(Record):
    """A trial ended early: by error, by invalid hyperparameters, or by a user."""

    type: Literal["exited"] = "exited"
    trial: int
    reason: Reason


class ParamsAssigned(Record):
    """The actual hyperparameters of a trial. A trial of another search has a number below 1."""

    type: Literal["told"] = "told"
    trial: int
    params: dict[str, Value]


class Promoted(Record):
    """A user promotes this trial to its next rung, whatever its rank."""

    type: Literal["promoted"] = "promoted"
    trial: int


class Extended(Record):
    """A user extends the search to `trials` in all (None: as the new budget allows). A closed search reopens."""

    type: Literal["extended"] = "extended"
    trials: int | None


Limit = Literal["budget", "max_time"]


class Closed(Record):
    """The search has used up a limit (trials, budget or time) and creates no more trials."""

    type: Literal["closed"] = "closed"
    limit: Limit


class Failed(Record):
    """`prepare` failed, or the class of a custom search raised, timed out, or returned an invalid answer."""

    type: Literal["failed"] = "failed"
    message: str


Happening = Annotated[
    Vacancy | Reported | Exited | ParamsAssigned | Promoted | Extended | Closed | Failed, Field(discriminator="type")
]


class LogEntry(Record):
    """An entry of a search's log; the first has number 1."""

    number: int
    at: FiniteFloat
    event: Happening
    decision: Decision | None = None

    @property
    def trial(self) -> int | None:
        """Return the trial of the entry; None for an unassigned vacancy, and for all trials."""
        about = self.decision if isinstance(self.decision, Create | Resume) else self.event
        return getattr(about, "trial", None)
