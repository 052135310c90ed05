"""What the service says to whoever watches: one stream of numbered messages, resumed by `after=SEQ`."""

from __future__ import annotations

from typing import Any, Literal

from kernel_backend.model.record import Record


class Message(Record):
    """Something became known. `seq` only grows; who has seen N asks for `after=N` and misses nothing.

    type        data
    experiment  the whole Experiment record, as it is now
    trial       the whole Trial record
    attempt     the whole Attempt record
    report      a StoredReport
    note        {"text": ..., "level": ..., "attempt": N}
    artifact    an Artifact
    search      an Entry of the search's log
    """

    seq: int
    at: float
    experiment: int
    trial: int | None = None
    type: Literal["experiment", "trial", "attempt", "report", "note", "artifact", "search"]
    data: dict[str, Any]
