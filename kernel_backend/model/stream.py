"""Define the stream of numbered messages to clients, which continue after a lost connection by `after=SEQ`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import FiniteFloat

from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.record import Record
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.search.records import LogEntry
from kernel_backend.model.trial import Attempt, Trial

MessageType = Literal["experiment", "trial", "attempt", "report", "note", "artifact", "search"]


class StoredNote(Record):
    """Warning or remark about an attempt, sent as the data of a stream message."""

    text: str
    level: Literal["info", "warning"] = "info"
    attempt: int


# Record in a message, by its type: for an experiment, trial or attempt its complete current record.
DATA: dict[MessageType, type[Record]] = {
    "experiment": Experiment,
    "trial": Trial,
    "attempt": Attempt,
    "report": StoredReport,
    "note": StoredNote,
    "artifact": Artifact,
    "search": LogEntry,  # entry of the search's log
}


class Message(Record):
    """Message of the stream, about a change of an experiment.

    `seq` grows with each message: a client that has read message N and requests `after=N` misses none.
    """

    seq: int
    at: FiniteFloat
    experiment: int
    trial: int | None = None
    type: MessageType
    data: dict[str, Any]  # fields of the record that DATA names for the type
