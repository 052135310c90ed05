"""Classify failures: repeatable errors of code or data, errors of storage, and checkpoints that were not saved."""

from __future__ import annotations

from typing import TypeGuard

from kernel_backend.errors import CheckpointFailed, InvalidDefinition, NotFinite
from kernel_backend.model.trial import PROGRAM_FAILED, USAGE_ERROR, Failure


def unsaved(failure: Failure | None) -> TypeGuard[Failure]:
    """Return whether the failure is only that the last checkpoint could not be written (full disk, dead storage)."""
    return failure is not None and failure.type == CheckpointFailed.__name__


def of_storage(failure: Failure | None) -> TypeGuard[Failure]:
    """Return whether a failure is given and is an error of checkpoint storage."""
    return failure is not None and failure.of_storage


def would_repeat(failure: Failure | None, before: Failure | None, progress: bool) -> TypeGuard[Failure]:
    """Return whether a retry would fail again in the same way.

    It would after an invalid definition or command line, after a loss that is not finite, and if the previous attempt
    had the same error of code or data (`before`) at the same step. Before the first step only errors of the user's own
    program count: other errors come from data, checkpoint storage or the network, which may recover. A program that
    reports no steps counts as being before its first step, unless it made `progress`.
    """
    if failure is None or of_storage(failure):
        return False
    # An invalid definition or command line stays invalid, and the same steps lead to the same weights.
    if failure.type in (InvalidDefinition.__name__, NotFinite.__name__, USAGE_ERROR):
        return True
    if not failure.same_as(before) or (failure.step is None and progress):
        return False
    return failure.type == PROGRAM_FAILED or (failure.raised and (failure.step is not None or failure.frames != ()))
