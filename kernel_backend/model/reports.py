"""Records of rank 0: numbered, spooled, delivered in batches, each accepted once.

Delivery key: (attempt, number). Meaning key of a report: (trial, kind, step). The first report of a key wins, so an
attempt that trains the same steps again changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from kernel_backend.model.artifacts import FILE, NAME
from kernel_backend.model.experiment import LogAction
from kernel_backend.model.facts import FactName
from kernel_backend.model.record import Record
from kernel_backend.model.trial import Failure

Kind = Literal["training", "validation"]
LARGEST = 2**63 - 1  # of a whole number that a database can hold
Count = Annotated[int, Field(ge=0, le=LARGEST)]


class Started(Record):
    """The ranks are connected and the first step is about to be taken."""

    type: Literal["started"] = "started"
    number: Count = 0
    at: FiniteFloat = 0.0
    backend: str  # horovod | torch
    reason: str  # why this one
    world: Count
    steps_per_epoch: Count | None  # None: of data without a length, before its first epoch is over
    total_steps: Count | None  # None: not known yet, or beyond LARGEST
    parameters: Count  # of the model
    guarantee: str = ""  # under what changes the result keeps its bits, in a sentence
    resumed_from: str | None = None
    runtime: dict[str, str] = {}  # torch, device and thread facts that only a rank knows


class Report(Record):
    """Metrics at a step. `epoch` counts in fractions: 1.5 is the middle of the second."""

    type: Literal["report"] = "report"
    number: Count = 0
    at: FiniteFloat = 0.0
    kind: Kind
    step: Count
    epoch: FiniteFloat
    metrics: dict[str, float]


class Committed(Record):
    """A committed checkpoint: its manifest has been written."""

    type: Literal["checkpoint"] = "checkpoint"
    number: Count = 0
    at: FiniteFloat = 0.0
    id: str = Field(pattern=r"^[0-9]{1,18}-[0-9]{1,9}$")  # <step>-<attempt>
    step: Count
    epoch: FiniteFloat
    bytes: Count
    seconds: FiniteFloat  # that it took to be written
    stall: FiniteFloat = 0.0  # seconds for which training stood still


class Note(Record):
    """A note for the user, such as a full disk at a checkpoint, or a damaged checkpoint."""

    type: Literal["note"] = "note"
    number: Count = 0
    at: FiniteFloat = 0.0
    level: Literal["info", "warning"] = "info"
    text: str


class Fact(Record):
    """A fact that the result depends on: `value` is the record of that name in `model/facts.py`, as JSON."""

    type: Literal["fact"] = "fact"
    number: Count = 0
    at: FiniteFloat = 0.0
    name: FactName
    value: dict[str, Any]


class Guarantee(Record):
    """Another reproducibility guarantee than the one of the start, such as after a rehearsal."""

    type: Literal["guarantee"] = "guarantee"
    number: Count = 0
    at: FiniteFloat = 0.0
    text: str


class ArtifactSaved(Record):
    """An artifact that has been stored; `step` is the current one. Fields as in `model/artifacts.py`."""

    type: Literal["kept"] = "kept"
    number: Count = 0
    at: FiniteFloat = 0.0
    name: str = Field(pattern=f"^{NAME}$")
    size: Count
    digest: str
    media: str
    file: str = Field(pattern=f"^{FILE}$")
    step: Count


SpoolRecord = Annotated[
    Started | Report | Committed | Note | Fact | Guarantee | ArtifactSaved, Field(discriminator="type")
]


class SpoolPosition(Record):
    """Read position in a spool: byte offset, and the number of the last record before it."""

    offset: Count = 0  # in bytes
    number: Count = 0  # the largest of a record before it


class SpoolPage(Record):
    """A page of a spool: its records by ascending number, and where the next page begins."""

    records: tuple[SpoolRecord, ...]
    end: SpoolPosition
    last: bool  # nothing more was there to read
    skipped: Count = 0  # lines that are no records, or repeat a number
    problem: str = Field("", max_length=500)  # what is wrong with the first of these


class Delivery(Record):
    """Body of `POST /api/attempts/KEY/records`; an empty list is a heartbeat."""

    records: tuple[SpoolRecord, ...] = ()
    notes: tuple[Annotated[str, Field(max_length=2000)], ...] = Field((), max_length=10)  # the launcher's own warnings


class Instruction(Record):
    """Answer to a delivery: the number of the last accepted record, and whether the ranks continue, release or stop."""

    accepted: int
    instruct: Literal["continue", "release", "stop"] = "continue"
    until: int | None = None  # continue to the end of this unit, and wait there for more; None: to the end


class LogMatch(Record):
    """The first line of a rank's log that matches a policy."""

    pattern: str
    action: LogAction
    rank: int
    line: str  # shortened


class AttemptResult(Record):
    """The launcher's record of an attempt's end (`outcome.json`). The engine may report an outcome too."""

    outcome: Literal["ok", "released", "failed", "lost"]
    exit_codes: tuple[int | None, ...]  # a rank each; negative: the signal
    failure: Failure | None = None
    matched: tuple[LogMatch, ...] = ()
    preparing: bool = False  # whether it failed within `prepare`, which is of all trials and not of this one
    ended_at: float


class StoredReport(Record):
    """A stored report, with the sequence number from which `after=` resumes."""

    seq: int
    trial: int
    attempt: int
    at: FiniteFloat
    kind: Kind
    step: int
    epoch: FiniteFloat
    metrics: dict[str, float]
