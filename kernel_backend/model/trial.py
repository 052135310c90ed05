"""Trials, their attempts, and failures of attempts."""

from __future__ import annotations

from pydantic import FiniteFloat

from kernel_backend.errors import CheckpointFailed, PlaceUnavailable
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.record import Record, Value
from kernel_backend.model.resources import Placement
from kernel_backend.model.states import AttemptState, Hold, Outcome, TrialState

HANG = "Hang"  # the type of a failure that no process told: the ranks made no progress

BEFORE = 0  # the number of the attempt that a copy of another trial's checkpoint is told to be of: before the first
WEIGHTS = ":weights"  # behind a checkpoint of which nothing else is taken, and with which training begins at step 0


class Frame(Record):
    """A line of the user's own code in a traceback, by cell if it came from one."""

    file: str
    line: int
    function: str
    text: str  # the source line, stripped
    cell: int | None = None  # execution count of the cell, as in `In [4]`
    cell_line: int | None = None

    @property
    def where(self) -> str:
        """Return `cell [4] line 3` or `helpers.py line 12`."""
        if self.cell is None:
            return f"{self.file} line {self.line}"
        return f"cell [{self.cell}] line {self.cell_line}"


class Failure(Record):
    """Cause of a rank's end. A consequence (a lost peer) is never shown if there is a cause."""

    rank: int
    type: str  # the exception's class, or the signal's name
    message: str
    step: int | None = None  # the step it happened in
    frames: tuple[Frame, ...] = ()
    traceback: str = ""
    consequence: bool = False
    invalid: bool = False  # an exception class named InvalidHyperparameters
    at: float = 0.0

    @property
    def raised(self) -> bool:
        """Return whether a Python exception caused the failure; a signal, an exit code or a hang has no known cause."""
        return self.traceback != "" and self.type != HANG

    @property
    def crash(self) -> bool:
        """Return whether the rank was killed by a signal or hung, so that it could not report the failure itself."""
        return self.type == HANG or self.type.startswith("SIG")

    @property
    def of_storage(self) -> bool:
        """Return whether checkpoint storage failed, not the training: it cannot be written or reached."""
        return self.type in (CheckpointFailed.__name__, PlaceUnavailable.__name__)

    def same_as(self, other: Failure | None) -> bool:
        """Return whether both failures are the same error at the same step, so that another retry is useless."""
        mine = (self.type, self.message, self.step)
        return other is not None and mine == (other.type, other.message, other.step)


class Best(Record):
    """Best validation value of the experiment's metric in a trial; always a finite number."""

    value: FiniteFloat  # as it was reported
    step: int
    epoch: FiniteFloat


class ScheduledTrial(Record):
    """Fields of a trial that the scheduler reads, for perhaps 100,000 queued trials."""

    experiment: int
    index: int
    state: TrialState
    holds: frozenset[Hold] = frozenset()
    attempt: int = 0
    failures: int = 0  # attempts in a row that ended by error and made no progress
    queued_at: FiniteFloat  # kept through faults and preemption: the place in the queue
    begins_from: str | None = None  # a checkpoint `12.3/<step>-<attempt>` of another trial, or `...:weights` of it
    checkpoint: str | None = None  # newest committed: "<step>-<attempt>"
    excluded: frozenset[str] = frozenset()  # nodes that a log policy keeps it from


class Trial(ScheduledTrial):
    """A trial: one training with fixed hyperparameters.

    `attempt` is its newest attempt's number, 0 before the first.
    """

    params: dict[str, Value]
    step: int = 0  # newest reported
    epoch: FiniteFloat = 0.0
    total_steps: int | None = None
    until: int | None = None  # the unit (epoch or step) at whose end it hears more; None: it trains to its end
    metrics: dict[str, float] = {}  # newest validation values
    best: Best | None = None  # None: it has not been validated, or never to a finite number
    training: dict[str, float] = {}  # newest training values
    failure: Failure | None = None
    ended_at: FiniteFloat | None = None

    @property
    def id(self) -> str:
        """Return the trial's id: `12.3`."""
        return f"{self.experiment}.{self.index}"

    @property
    def newest(self) -> tuple[str, dict[str, float]]:
        """Return kind and metrics of the newest validation report, or without one of the newest training report."""
        return ("validation", self.metrics) if self.metrics else ("training", self.training)


class Attempt(Record):
    """An attempt: one execution of a trial on a gang."""

    experiment: int
    trial: int
    number: int
    state: AttemptState
    placement: Placement
    resume_from: str | None = None  # "<step>-<attempt>", pinned when the attempt is made
    created_at: FiniteFloat
    ended_at: FiniteFloat | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None
    accepted: int = 0  # number of the newest spool record taken: the delivery key
    backend: str | None = None  # what the ranks really use, and why
    backend_reason: str | None = None
    guarantee: str | None = None  # under what changes the result keeps its bits

    @property
    def id(self) -> AttemptId:
        """Return the attempt's key in engines and folders."""
        return AttemptId(self.experiment, self.trial, self.number)


def checkpoint_step(checkpoint: str | None) -> int:
    """Return the step of a checkpoint's name `<step>-<attempt>`; 0 if there is none."""
    return checkpoint_order(checkpoint)[0] if checkpoint else 0


def checkpoint_order(checkpoint: str) -> tuple[int, int]:
    """Return the sort key (step, attempt) of a checkpoint's name `<step>-<attempt>`."""
    step, attempt = checkpoint.split("-")
    return int(step), int(attempt)
