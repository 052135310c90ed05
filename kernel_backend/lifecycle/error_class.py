"""Classify failures: repeatable errors of code or data, errors of storage, and checkpoints that were not saved."""

from __future__ import annotations

from typing import TypeGuard

from kernel_backend.errors import CheckpointFailed, InvalidDefinition, NotFinite
from kernel_backend.model.trial import PROGRAM_FAILED, USAGE_ERROR, Failure


def unsaved(failure: Failure | None) -> TypeGuard[Failure]:
    """Return True if an attempt failed only because its last checkpoint could not be written, as on a full disk."""
    return failure is not None and failure.type == CheckpointFailed.__name__


def of_storage(failure: Failure | None) -> TypeGuard[Failure]:
    """Return True if a failure is an error of checkpoint storage, such as a full disk; False for None."""
    return failure is not None and failure.of_storage


def would_repeat(failure: Failure | None, before: Failure | None, progress: bool) -> TypeGuard[Failure]:
    """Return True if a retry of an attempt with this failure would fail again in the same way.

    `before` is the failure of the previous attempt. True after an invalid definition or command line, after a loss that
    is not finite, and if both attempts had the same error of code or data at the same step. For errors before the first
    step this holds only if they are from the user's own program: others come from data, checkpoint storage or the
    network, which may recover. A program that reports no steps counts as being before its first step; its repeated
    error may be retried if the attempt made `progress`.
    """
    if failure is None or of_storage(failure):
        return False
    # An invalid definition or command line stays invalid, and the same steps lead to the same weights.
    if failure.type in (InvalidDefinition.__name__, NotFinite.__name__, USAGE_ERROR):
        return True
    if not failure.same_as(before) or (failure.step is None and progress):
        return False
    return failure.type == PROGRAM_FAILED or (failure.raised and (failure.step is not None or failure.frames != ()))
