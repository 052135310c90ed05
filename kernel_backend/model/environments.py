"""What an experiment ran with, as people look at it: recorded, locked, built."""

from __future__ import annotations

from kernel_backend.model.record import Record
from kernel_backend.model.snapshot import Environment


class EnvironmentInfo(Record):
    """The answer of `GET /api/experiments/12/environment`."""

    id: str
    recorded: Environment
    lock: str | None  # requirements with hashes; None before they were made
    locked: int  # how many distributions they are
    unlocked: dict[str, str]  # name -> why there is no hash of it
    built: str | None  # the interpreter of the environment that was built from the lock
