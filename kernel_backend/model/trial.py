"""Define trials, their attempts, and failures of attempts."""

from __future__ import annotations

import re
from typing import NamedTuple

from pydantic import FiniteFloat

from kernel_backend.errors import CheckpointFailed, PlaceUnavailable
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.nodes import GangNode, placement_of
from kernel_backend.model.launch.trace import Trace
from kernel_backend.model.record import Record, Value
from kernel_backend.model.resources import LOCAL, Placement
from kernel_backend.model.states import AttemptState, Hold, Outcome, TrialState

# Types of failures that are no exceptions.
OUT_OF_MEMORY = "OutOfMemory"  # a process was killed for lack of memory
HANG = "Hang"  # no process reported it: the ranks made no progress
NOT_SAVED = "NotSaved"  # type of the failure of a program that could not go on from its checkpoint
USAGE_ERROR = "UsageError"  # the program refused its command line
PROGRAM_FAILED = "ProgramFailed"  # the program of a command exited with an error, without a traceback

BEFORE = 0  # attempt number of a checkpoint that was copied from another trial

# What an error's message has of one attempt: its folder, temporary files, addresses, processes.
_OF_AN_ATTEMPT = re.compile(r"\battempts/\d+\.\d+-\d+|\btmp[a-z0-9_]{8}\b|\b0x[0-9a-f]{6,16}\b|\bpid \d+")


class Beginning(NamedTuple):
    """Checkpoint of another trial from which a trial begins, written as `41.1/500-2`.

    `part` is empty if training goes on from there. Else it begins at step 0: with the model's weights for `weights`
    (`41.1/500-2:weights`), with the trained model for `model`.
    """

    trial: str
    checkpoint: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.trial}/{self.checkpoint}" + (f":{self.part}" if self.part else "")


WEIGHTS, MODEL = "weights", "model"  # parts of a beginning


def parse_beginning(text: str) -> Beginning:
    """Return a trial's beginning from its text.

    Examples
    --------
    >>> parse_beginning("41.1/500-2:weights")
    Beginning(trial='41.1', checkpoint='500-2', part='weights')
    """
    trial, _, rest = text.partition("/")
    checkpoint, _, part = rest.partition(":")
    return Beginning(trial, checkpoint, part)


class Frame(Record):
    """Frame of the user's own code in a traceback, with the notebook cell from which it comes, if any."""

    file: str
    line: int
    function: str
    text: str  # the source line, stripped
    cell: int | None = None  # execution count of the cell, as in `In [4]`
    cell_line: int | None = None

    @property
    def where(self) -> str:
        """Return the frame's location for users: `cell [4] line 3` or `helpers.py line 12`."""
        if self.cell is None:
            return f"{self.file} line {self.line}"
        return f"cell [{self.cell}] line {self.cell_line}"


class Failure(Record):
    """Failure of a rank.

    If it is only a consequence, such as a lost peer, it is not shown once the cause is known.
    """

    rank: int
    type: str  # name of the exception's class, or of the signal
    message: str
    step: int | None = None  # training step at which it happened
    frames: tuple[Frame, ...] = ()
    traceback: str = ""
    consequence: bool = False
    invalid: bool = False  # the exception's class is named InvalidHyperparameters
    at: float = 0.0

    @property
    def raised(self) -> bool:
        """Return whether a Python exception caused the failure, not a signal, an exit code or a hang."""
        return self.traceback != "" and self.type != HANG

    @property
    def crash(self) -> bool:
        """Return whether the rank was killed by a signal or hung, so that it could not report the failure itself."""
        return self.type == HANG or self.type.startswith("SIG")

    @property
    def of_storage(self) -> bool:
        """Return whether checkpoint storage failed (it cannot be written or reached), not the training."""
        return self.type in (CheckpointFailed.__name__, PlaceUnavailable.__name__)

    def same_as(self, other: Failure | None) -> bool:
        """Return whether both failures are the same error at the same step, so that another retry is useless.

        Of the messages the first lines are compared, as those after them may quote a log, and times in it.
        """
        mine = (self.type, _lasting(self.message), self.step)
        return other is not None and mine == (other.type, _lasting(other.message), other.step)


def _lasting(message: str) -> str:
    return _OF_AN_ATTEMPT.sub("", message.partition("\n")[0])


class Best(Record):
    """Best validation value of the experiment's metric in a trial; always a finite number."""

    value: FiniteFloat  # as it was reported
    step: int
    epoch: FiniteFloat


class ScheduledTrial(Record):
    """Fields of a trial that the scheduler needs; there are few, since 100,000 trials may be queued."""

    experiment: int
    index: int
    state: TrialState
    holds: frozenset[Hold] = frozenset()
    attempt: int = 0
    failures: int = 0  # consecutive attempts that ended with an error without progress
    queued_at: FiniteFloat  # position in the queue; unchanged by faults and preemption
    begins_from: str | None = None  # checkpoint `12.3/<step>-<attempt>`; with `:weights` only its weights
    checkpoint: str | None = None  # newest committed: "<step>-<attempt>"
    excluded: frozenset[str] = frozenset()  # nodes excluded by a log policy


class Trial(ScheduledTrial):
    """Trial: one training with fixed hyperparameters.

    `attempt` is the number of its newest attempt, 0 before the first.
    """

    params: dict[str, Value]
    step: int = 0  # newest reported step
    epoch: FiniteFloat = 0.0
    total_steps: int | None = None
    until: int | None = None  # unit (epoch or step) after which its search decides; None: trains to the end
    metrics: dict[str, float] = {}  # newest validation values
    best: Best | None = None  # None: no validation with a finite value yet
    training: dict[str, float] = {}  # newest training values
    failure: Failure | None = None
    ended_at: FiniteFloat | None = None

    @property
    def id(self) -> str:
        """Return the trial's id: `12.3`."""
        return f"{self.experiment}.{self.index}"

    @property
    def newest(self) -> tuple[str, dict[str, float]]:
        """Return the kind and the metrics of the newest validation; without one, of the newest training report."""
        return ("validation", self.metrics) if self.metrics else ("training", self.training)


class Attempt(Record):
    """One execution of a trial on a gang."""

    experiment: int
    trial: int
    number: int
    state: AttemptState
    placement: Placement
    pool: str = LOCAL  # whose engine runs it
    resume_from: str | None = None  # "<step>-<attempt>", fixed when the attempt is created
    created_at: FiniteFloat
    granted_at: FiniteFloat | None = None  # when it got its slots; None while it waits in its engine's own queue
    nodes: tuple[GangNode, ...] = ()  # where it really runs, if its engine chose the nodes
    ended_at: FiniteFloat | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None
    accepted: int = 0  # number of the last accepted spool record
    backend: str | None = None  # backend that the ranks use
    backend_reason: str | None = None
    guarantee: str | None = None  # under which changes the result stays bit-identical
    trace: Trace | None = None  # to be recorded by its ranks, which have not answered yet

    @property
    def id(self) -> AttemptId:
        """Return the identifier of the attempt, such as `12.3-2`."""
        return AttemptId(self.experiment, self.trial, self.number)

    @property
    def actual(self) -> Placement:
        """Return the placement of the gang on nodes; the requested one as long as no engine has chosen other nodes."""
        return placement_of(self.nodes) if self.nodes else self.placement

    @property
    def slots(self) -> int:
        """Return the number of slots of the attempt, which is the number of its ranks."""
        return sum(len(share.slots) for share in self.actual)


def checkpoint_step(checkpoint: str | None) -> int:
    """Return the step of a checkpoint id `<step>-<attempt>`; 0 for None."""
    return checkpoint_order(checkpoint)[0] if checkpoint else 0


def checkpoint_order(checkpoint: str) -> tuple[int, int]:
    """Return the sort key (step, attempt) of a checkpoint id `<step>-<attempt>`."""
    step, attempt = checkpoint.split("-")
    return int(step), int(attempt)
