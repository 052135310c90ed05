"""An experiment, what a person asked for it, and how a request for one looks on the wire."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Record, Value
from kernel_backend.model.states import ExperimentState

BackendChoice = Literal["auto", "horovod", "torch"]
_CADENCE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|epochs?|steps?)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Cadence(Record):
    """How often: exactly one of the three is set."""

    seconds: float | None = None
    epochs: int | None = None
    steps: int | None = None


def parse_cadence(text: str) -> Cadence:
    """Read `60s`, `10m`, `1epoch` or `500steps`; raises InvalidRequest with the text."""
    found = _CADENCE.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise InvalidRequest(f"{text!r} is no interval: write 60s, 10m, 1epoch or 500steps")
    amount, unit = found.groups()
    if unit in _SECONDS:
        return Cadence(seconds=float(amount) * _SECONDS[unit])
    if "." in amount:
        raise InvalidRequest(f"{text!r} is no interval: {unit} are counted in whole numbers")
    return Cadence(epochs=int(amount)) if unit.startswith("epoch") else Cadence(steps=int(amount))


class Config(Record):
    """What the platform owns about a training: given by flags, never by the user's code."""

    form: Literal["functions"] = "functions"
    slots: int = Field(1, ge=1)
    backend: BackendChoice = "auto"
    epochs: int = Field(1, ge=1)
    batch_size: int = Field(32, ge=1)  # global: over all slots
    seed: int = Field(0, ge=0, lt=2**63)
    threads: int | None = Field(None, ge=1)  # per slot; None until the service fixes it at submit
    checkpoint_every: Cadence = Cadence(seconds=60.0)
    max_restarts: int = Field(5, ge=0)


class Submission(Record):
    """The body of `POST /api/experiments`: a stored snapshot and what to do with it."""

    snapshot: str  # sha256 of the archive, uploaded before
    config: Config = Config()
    params: dict[str, Value] = {}  # as given on the line; defaults come from the definition
    name: str | None = Field(None, max_length=200)
    python: str  # the interpreter that ranks run in (the kernel's own)
    cwd: str  # where relative paths of the cell lead
    notebook: str | None = None


class Experiment(Record):
    """What one submission created; times are seconds since the epoch (UTC)."""

    number: int
    name: str
    state: ExperimentState
    owner: str
    group: str
    snapshot: str
    config: Config
    params: dict[str, Value]  # all of them, defaults included
    python: str
    cwd: str
    notebook: str | None
    created_at: float
    ended_at: float | None = None
