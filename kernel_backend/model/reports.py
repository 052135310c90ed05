"""Define the records that rank 0 writes to a spool file and delivers in batches; each has a number and is stored once.

A record is identified by its attempt and number. If a trial reports the same kind and step several times, the first
report is stored, so that an attempt which repeats steps changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from kernel_backend.model.artifacts import FILE, NAME
from kernel_backend.model.experiment import LogAction
from kernel_backend.model.facts import FactName
from kernel_backend.model.launch.progress import Phase
from kernel_backend.model.launch.trace import Trace
from kernel_backend.model.launch.utilisation import MOST_DELIVERED, DeliveredUse
from kernel_backend.model.node_faults import FaultKind
from kernel_backend.model.record import Record
from kernel_backend.model.times import MOST_RANKS, RankTimes
from kernel_backend.model.trial import Failure

Kind = Literal["training", "validation"]
LARGEST = 2**63 - 1  # largest integer that a database stores
Count = Annotated[int, Field(ge=0, le=LARGEST)]


class Started(Record):
    """Record: the ranks are connected and are about to take the first step."""

    type: Literal["started"] = "started"
    number: Count = 0
    at: FiniteFloat = 0.0
    backend: str  # horovod | torch
    reason: str  # why this backend was chosen
    world: Count
    steps_per_epoch: Count | None  # None: unknown before the end of the first epoch, if the data has no length
    total_steps: Count | None  # None: unknown, or beyond LARGEST
    parameters: Count  # number of model parameters
    guarantee: str = ""  # sentence that says under which changes the result stays bit-identical
    resumed_from: str | None = None
    runtime: dict[str, str] = {}  # versions of torch, device and threads, known only to a rank


class Report(Record):
    """Metrics at a step; `epoch` is a fraction: 1.5 is the middle of the second epoch."""

    type: Literal["report"] = "report"
    number: Count = 0
    at: FiniteFloat = 0.0
    kind: Kind
    step: Count
    epoch: FiniteFloat
    metrics: dict[str, float]


class Committed(Record):
    """Record of a committed checkpoint, whose manifest has been written."""

    type: Literal["checkpoint"] = "checkpoint"
    number: Count = 0
    at: FiniteFloat = 0.0
    id: str = Field(pattern=r"^[0-9]{1,18}-[0-9]{1,9}$")  # <step>-<attempt>
    step: Count
    epoch: FiniteFloat
    bytes: Count
    seconds: FiniteFloat  # duration of the write
    stall: FiniteFloat = 0.0  # seconds for which training was blocked


NoteLevel = Literal["info", "warning"]


class Note(Record):
    """Message for the user, such as a full disk at a checkpoint, or a damaged checkpoint."""

    type: Literal["note"] = "note"
    number: Count = 0
    at: FiniteFloat = 0.0
    level: NoteLevel = "info"
    text: str


class Fact(Record):
    """Provenance record: `value` is the record of that name in `model/facts.py`, as JSON."""

    type: Literal["fact"] = "fact"
    number: Count = 0
    at: FiniteFloat = 0.0
    name: FactName
    value: dict[str, Any]


class Guarantee(Record):
    """Reproducibility guarantee that replaces the one reported at the start.

    It is reported for example after a rehearsal: a test, during the training, of whether a restart from a checkpoint
    repeats its steps exactly.
    """

    type: Literal["guarantee"] = "guarantee"
    number: Count = 0
    at: FiniteFloat = 0.0
    text: str


class Traced(Record):
    """Record: a requested trace was recorded or failed; `text` is a note for the user."""

    type: Literal["traced"] = "traced"
    number: Count = 0
    at: FiniteFloat = 0.0
    id: str
    text: str


class ArtifactSaved(Record):
    """Record of an artifact that was stored at a step. Its fields are those in `model/artifacts.py`."""

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
    Started | Report | Committed | Note | Fact | Guarantee | ArtifactSaved | Traced, Field(discriminator="type")
]


class SpoolPosition(Record):
    """Position in a spool, the file to which rank 0 appends its records for the service.

    It is the byte offset from which to read, and the largest number of a record before it.
    """

    offset: Count = 0  # in bytes
    number: Count = 0  # largest number of a record before the offset


class Measurements(Record):
    """Measurements by the launcher of a node: how its ranks have spent their time, and how they used their slots."""

    times: Annotated[tuple[RankTimes, ...], Field(max_length=MOST_RANKS)] = ()
    use: Annotated[tuple[DeliveredUse, ...], Field(max_length=MOST_DELIVERED)] = ()  # since the last delivery


class SpoolPage(Record):
    """Page of a spool, the file of an attempt's records: some records in order, and where the next page begins."""

    records: tuple[SpoolRecord, ...]
    end: SpoolPosition
    last: bool  # this is the last page
    skipped: Count = 0  # lines that are invalid, or repeat a number
    problem: str = Field("", max_length=500)  # error of the first skipped line
    measured: tuple[Measurements, ...] = ()  # on the first page: what each node's launcher has left at the end


class Delivery(Measurements):
    """Body of `POST /api/attempts/KEY/records`: records, and measurements since the last delivery.

    A delivery without any of these is a heartbeat.
    """

    records: tuple[SpoolRecord, ...] = ()
    notes: tuple[Annotated[str, Field(max_length=2000)], ...] = Field((), max_length=10)  # warnings of the launcher
    phase: Phase | None = None  # of rank 0 now; None: not told
    phase_seconds: Annotated[FiniteFloat, Field(ge=0)] = 0.0  # for how long it has been in this phase
    phase_text: Annotated[str, Field(max_length=300)] = ""  # what it does in this phase; "" if the phase says it


class Instruction(Record):
    """Answer of the service to a delivery: the number of the last accepted record, and what the ranks do next.

    They continue, release their slots, or stop.
    """

    accepted: int
    instruct: Literal["continue", "release", "stop"] = "continue"
    until: int | None = None  # train to the end of this unit, then ask again; None: train to the end
    trace: Trace | None = None  # record these steps


class LogMatch(Record):
    """First line of a rank's log that matches a log policy, a rule for failed attempts."""

    pattern: str
    action: LogAction
    rank: int
    line: str  # shortened


class NodeProblem(Record):
    """Fault of one of a gang's nodes, as its launchers or its engine saw it."""

    node: str  # its name in the engine; "": the gang's only node
    kind: FaultKind
    reason: str


class AttemptResult(Record):
    """End of an attempt, as its launcher records it in `outcome.json`; the engine may report an outcome as well."""

    outcome: Literal["ok", "released", "failed", "lost"]
    exit_codes: tuple[int | None, ...]  # one per rank; negative: minus the signal's number
    failure: Failure | None = None
    matched: tuple[LogMatch, ...] = ()
    preparing: bool = False  # failed in `prepare`, which concerns all trials
    problems: tuple[NodeProblem, ...] = ()  # of its nodes
    ended_at: float


class NodeEnd(Record):
    """Record by a node's launcher of how its ranks ended. The gang's result is computed from those of all nodes."""

    node: int
    names: tuple[str, ...]  # of all nodes of the gang, by number
    size: int  # number of ranks of the whole gang
    codes: dict[int, int | None] = {}  # exit codes by rank; negative: minus the signal's number
    killed: tuple[int, ...] = ()  # ranks that the launcher has killed, because another had failed
    failures: tuple[Failure, ...] = ()  # records that its ranks wrote before they exited
    steps: dict[int, int | None] = {}  # last step by rank
    hung: Failure | None = None  # if its ranks were ended since they made no progress
    through: bool = False  # its ranks had completed their steps
    preparing: tuple[int, ...] = ()  # ranks that were in `prepare`
    matched: tuple[LogMatch, ...] = ()
    lost: str = ""  # why there are no valid exit codes, such as the end of the forkserver
    gpu: str = ""  # error that a GPU of the node has reported
    memory: str = ""  # how much memory there is, if the kernel has killed a process for lack of it
    refused: Failure | None = None  # why its ranks were never started, or the launcher could not go on
    refused_as: Literal["failed", "lost", "released"] = "failed"
    ended_at: float


class StoredReport(Record):
    """Stored report of a trial. A client that has read number `seq` requests newer reports with `after=seq`."""

    seq: int
    trial: int
    attempt: int
    at: FiniteFloat
    kind: Kind
    step: int
    epoch: FiniteFloat
    metrics: dict[str, float]
