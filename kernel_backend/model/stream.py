"""Define the stream of numbered messages to clients, resumed by `after=SEQ`."""

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
    """Describe a warning or a remark about an attempt, as a message carries it."""

    text: str
    level: Literal["info", "warning"] = "info"
    attempt: int


# What the data of a message is, by its type: of an experiment, a trial and an attempt the whole record as it is now.
DATA: dict[MessageType, type[Record]] = {
    "experiment": Experiment,
    "trial": Trial,
    "attempt": Attempt,
    "report": StoredReport,
    "note": StoredNote,
    "artifact": Artifact,
    "search": LogEntry,  # of the search's log
}


class Message(Record):
    """A message of the stream.

    `seq` only grows: a client that has seen N requests `after=N` and misses nothing.
    """

    seq: int
    at: FiniteFloat
    experiment: int
    trial: int | None = None
    type: MessageType
    data: dict[str, Any]  # the record that DATA has for the type
