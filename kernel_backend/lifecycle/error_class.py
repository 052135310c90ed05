"""Classify failures: repeatable errors of code or data, errors of storage, and checkpoints that were not saved."""

from __future__ import annotations

import re
from typing import TypeGuard

from kernel_backend.errors import CheckpointFailed, InvalidDefinition, NotFinite
from kernel_backend.model.trial import PROGRAM_FAILED, USAGE_ERROR, Failure

# Errors that follow from code and values alone. Errors of the machine, such as OSError, MemoryError and those of CUDA
# and of connections, are of other classes.
_OF_CODE = {
    "AssertionError", "AttributeError", "IndexError", "KeyError", "NameError", "NotImplementedError", "TypeError",
    "UnboundLocalError", "ValueError", "ZeroDivisionError",
}  # fmt: skip
_OF_SHAPES = re.compile(
    r"shapes cannot be multiplied|must match the size|size mismatch|shape '.*' is invalid|Given groups=|"
    r"expected scalar type|must have the same dtype|does not require grad|modified by an inplace operation"
)
_OF_MACHINE = re.compile(r"CUDA|NCCL|gloo|out of memory|allocate|timed? ?out|connection|device-side", re.IGNORECASE)
_RAISED_AT = re.compile(r'^ +File "(.+)", line \d+, in (.+)(?:\n +(?!File )(.+))?$', re.MULTILINE)


def unsaved(failure: Failure | None) -> TypeGuard[Failure]:
    """Return True if an attempt failed only because its last checkpoint could not be written, as on a full disk."""
    return failure is not None and failure.type == CheckpointFailed.__name__


def of_storage(failure: Failure | None) -> TypeGuard[Failure]:
    """Return True if a failure is an error of checkpoint storage, such as a full disk; False for None."""
    return failure is not None and failure.of_storage


def of_code(failure: Failure | None) -> TypeGuard[Failure]:
    """Return True if an error follows from the user's code alone, so that even a first retry would be in vain.

    It was raised by a line of the user's own, or by torch below it, and is of a class that has no other causes than
    code and values.
    """
    if failure is None or not failure.frames or failure.consequence or _OF_MACHINE.search(failure.message):
        return False
    of_shapes = failure.type == "RuntimeError" and _OF_SHAPES.search(failure.message)
    calls = _RAISED_AT.findall(failure.traceback)
    if not calls or not (failure.type in _OF_CODE or of_shapes):
        return False
    file, function, text = calls[-1]
    own = failure.frames[-1]
    return (function, text.strip()) == (own.function, own.text) or "/site-packages/torch/" in file


def would_repeat(failure: Failure | None, before: Failure | None, progress: bool) -> TypeGuard[Failure]:
    """Return True if a retry of an attempt with this failure would fail again in the same way.

    `before` is the failure of the previous attempt. True after an invalid definition or command line, after a loss that
    is not finite, after an error of the user's code alone in an attempt without `progress`, and if both attempts had
    the same error of code or data at the same step. For errors before the first
    step this holds only if they are from the user's own program: others come from data, checkpoint storage or the
    network, which may recover. A program that reports no steps counts as being before its first step; its repeated
    error may be retried if the attempt made `progress`.
    """
    if failure is None or of_storage(failure):
        return False
    # An invalid definition or command line stays invalid, and the same steps lead to the same weights.
    if failure.type in (InvalidDefinition.__name__, NotFinite.__name__, USAGE_ERROR):
        return True
    if of_code(failure) and not progress:
        return True
    if not failure.same_as(before) or (failure.step is None and progress):
        return False
    return failure.type == PROGRAM_FAILED or (failure.raised and (failure.step is not None or failure.frames != ()))
