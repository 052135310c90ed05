"""A search in words: what a person asks for, what happens to its trials, and what is decided on it.

What happens and what was decided is one log, `Entry` by `Entry`; a search's state is the fold of it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from kernel_backend.model.record import Record, Value

Method = Literal["single", "random", "grid", "sobol", "asha", "hyperband", "pbt", "tpe", "gp", "cmaes", "custom"]
Sampler = Literal["kde", "random", "sobol", "tpe", "gp", "cmaes"]

# Where neither trials nor a budget or time are given. A grid, a population and Hyperband's brackets have numbers of
# their own.
USUAL_TRIALS: dict[Method, int] = {
    "single": 1,
    "asha": 64,
    **dict.fromkeys(("random", "sobol", "tpe", "gp", "cmaes", "custom"), 16),
}

# What gives new trials their values where nothing else is said; in all others it is random.
USUAL_SAMPLER: dict[Method, Sampler] = {"asha": "kde", "sobol": "sobol", "tpe": "tpe", "gp": "gp", "cmaes": "cmaes"}


class Search(Record):
    """How hyperparameters are looked for. What does not apply to the method is refused where it is given."""

    method: Method = "single"
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
    warm: tuple[str, ...] = ()  # experiments `12` whose results it knows, or a checkpoint `12.7` that trials begin from

    @property
    def limit(self) -> int | None:
        """How many trials there may be; None: as many as the budget, the time or the method itself has."""
        return self.trials if self.ends_by_use else self.trials or USUAL_TRIALS.get(self.method)

    @property
    def samples_by(self) -> Sampler:
        """What gives new trials their values."""
        return self.sampler or USUAL_SAMPLER.get(self.method, "random")

    @property
    def learns(self) -> bool:
        """Whether what was found before makes a difference to new trials."""
        return self.method == "custom" or self.samples_by not in ("random", "sobol")

    @property
    def ends_by_use(self) -> bool:
        """Whether it goes on until what it was given is used up."""
        return self.budget is not None or self.max_time is not None


class Settings(Search):
    """All that a searcher is built from: what was asked for, and what the rest of the configuration says."""

    units: int = Field(ge=1)  # R: the epochs, or steps, of one whole training
    mode: Literal["min", "max"] = "min"  # of the metric
    seed: int = 0


# What is decided


class Create(Record):
    """A new trial with these hyperparameters trains up to the end of unit `until`."""

    type: Literal["create"] = "create"
    trial: int
    params: dict[str, Value]
    until: int
    parent: int | None = None  # the trial whose newest checkpoint it begins from, and goes on


class Resume(Record):
    """A paused trial trains on, up to the end of unit `until`."""

    type: Literal["resume"] = "resume"
    trial: int
    until: int


class Continue(Record):
    """The trial keeps its slots and trains up to the end of unit `until`."""

    type: Literal["continue"] = "continue"
    until: int


class Pause(Record):
    """The trial gives its slots back and may be resumed."""

    type: Literal["pause"] = "pause"


class Prune(Record):
    """The trial is given up for good."""

    type: Literal["prune"] = "prune"


class Complete(Record):
    """The trial has come to the end of its training."""

    type: Literal["complete"] = "complete"


Granted = Create | Resume
Verdict = Continue | Pause | Prune | Complete
Decision = Annotated[Granted | Verdict, Field(discriminator="type")]


# What happens


class Vacancy(Record):
    """A gang was granted; the decision, if one, says to which trial."""

    type: Literal["vacancy"] = "vacancy"


class Reported(Record):
    """The metric's value at the end of a unit, as it was reported (`metric:max` is not negated)."""

    type: Literal["reported"] = "reported"
    trial: int
    unit: int
    value: float
    seq: int = 0  # of the report: what came after it has not been heard yet


Reason = Literal["failed", "invalid", "pruned", "stopped"]


class Exited(Record):
    """A trial has ended before its time: by error, by hyperparameters that make no model, or by hand."""

    type: Literal["exited"] = "exited"
    trial: int
    reason: Reason


class Told(Record):
    """The hyperparameters that a trial really has. One of another search has a number below 1."""

    type: Literal["told"] = "told"
    trial: int
    params: dict[str, Value]


class Promoted(Record):
    """A person wants this trial to go on to its next rung, whatever its rank."""

    type: Literal["promoted"] = "promoted"
    trial: int


class Extended(Record):
    """A person wants `trials` in all (None: as many as a new budget allows); a closed search is open again."""

    type: Literal["extended"] = "extended"
    trials: int | None


Limit = Literal["budget", "max_time"]


class Closed(Record):
    """What the search may use is used up: nothing is wanted any more."""

    type: Literal["closed"] = "closed"
    limit: Limit


class Failed(Record):
    """`prepare` fails, or the class of a custom search has raised, not answered in time, or with what is no answer."""

    type: Literal["failed"] = "failed"
    message: str


Happening = Annotated[
    Vacancy | Reported | Exited | Told | Promoted | Extended | Closed | Failed, Field(discriminator="type")
]


class Entry(Record):
    """One line of a search's log; the first has number 1."""

    number: int
    at: FiniteFloat
    event: Happening
    decision: Decision | None = None

    @property
    def trial(self) -> int | None:
        """Whom it is about; None of a vacancy that nobody gets, and of all trials."""
        about = self.decision if isinstance(self.decision, Create | Resume) else self.event
        return getattr(about, "trial", None)
