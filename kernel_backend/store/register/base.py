"""Define the part of a store that holds registered models."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.register.records import Model, ModelChange, ModelVersion


class ModelStep(NamedTuple):
    """Change of a model that is to be stored: an entry of its log, a new version, and an audit entry."""

    change: ModelChange
    version: ModelVersion | None = None  # its number is assigned by the store
    entry: AuditEntry | None = None


# Returns what is to be stored, or None; the argument is None for a model that does not exist yet.
Decide = Callable[[Model | None], ModelStep | None]


class RegisterStore(Protocol):
    """Store of registered models.

    Versions and entries of logs are never changed or deleted: a removal is an entry of the log.
    """

    def models(self, owner: str | None = None, name: str | None = None) -> list[Model]:
        """Return registered models by owner and name: all, those of an owner, or those with a name."""

    def change_model(self, owner: str, name: str, decide: Decide) -> Model | None:
        """Change a model by what a function decides from its present state, in one transaction.

        Writers take turns, so that the log is linear: entries are numbered from 1 without gaps, and an entry's time is
        at least that of the one before. Returns the model, None if it does not exist. Raises any error of `decide`;
        nothing is stored then.
        """

    def registered(self, experiment: int) -> list[ModelVersion]:
        """Return the versions, of all models, that point to checkpoints of an experiment and are not removed."""
