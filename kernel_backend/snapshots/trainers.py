"""Bring what a job has made of a framework's Trainer into a Trainer of the notebook, which cannot travel itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, repr=False)
class TrainedTrainer:
    """State of a Trainer at the end of its training: its model, and its counters, metrics and logs."""

    model: Any
    state: Any

    def __repr__(self) -> str:
        return f"<state of the job's Trainer of {type(self.model).__name__}: put_into(trainer) brings it into another>"

    def put_into(self, trainer: Any) -> None:
        """Give this state to a new Trainer, so that it is as if it had trained."""
        raise NotImplementedError
