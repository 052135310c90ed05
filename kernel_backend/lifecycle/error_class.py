"""Classify failures: repeatable errors of code or data, storage errors, and unsaved checkpoints."""

from __future__ import annotations

from typing import TypeGuard

from kernel_backend.errors import CheckpointFailed, InvalidDefinition, NotFinite
from kernel_backend.model.trial import PROGRAM_FAILED, USAGE_ERROR, Failure


def unsaved(failure: Failure | None) -> TypeGuard[Failure]:
    """Return whether the only failure is that the last checkpoint could not be written (full disk, dead storage)."""
    return failure is not None and failure.type == CheckpointFailed.__name__


def of_storage(failure: Failure | None) -> TypeGuard[Failure]:
    """Return whether the failure, if there is one, is a storage error."""
    return failure is not None and failure.of_storage


def would_repeat(failure: Failure | None, before: Failure | None, progress: bool) -> TypeGuard[Failure]:
    """Return whether a retry would fail in the same way: the error is the previous attempt's, of code or data.

    Before the first step only an error in the user's own program counts: others come from data, checkpoint storage or
    the network, which may recover. A program that reports no steps counts as before its first step, unless it made
    `progress`.
    """
    if failure is None or of_storage(failure):
        return False
    # An invalid definition or command line stays invalid, and the same steps lead to the same weights.
    if failure.type in (InvalidDefinition.__name__, NotFinite.__name__, USAGE_ERROR):
        return True
    if not failure.same_as(before) or (failure.step is None and progress):
        return False
    return failure.type == PROGRAM_FAILED or (failure.raised and (failure.step is not None or failure.frames != ()))
