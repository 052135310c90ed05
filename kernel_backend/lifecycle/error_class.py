"""What an error says of itself: whether it would come once more, and whether it is anybody's at all."""

from __future__ import annotations

from typing import TypeGuard

from kernel_backend.errors import CheckpointFailed, InvalidDefinition, NotFinite
from kernel_backend.model.trial import Failure


def unsaved(failure: Failure | None) -> TypeGuard[Failure]:
    """Whether all that is wrong is that the last checkpoint could not be written: a full disk, a silent store."""
    return failure is not None and failure.type == CheckpointFailed.__name__


def of_storage(failure: Failure | None) -> TypeGuard[Failure]:
    """Whether there is a failure and it is one of storage."""
    return failure is not None and failure.of_storage


def would_repeat(failure: Failure | None, before: Failure | None) -> TypeGuard[Failure]:
    """Whether it comes from the code or the data, as the error of the attempt before did: it would come once more.

    Before the first step only one in the user's own code is. Others are of what a training is begun with, the store of
    its checkpoints or the network, and these recover.
    """
    if failure is None or of_storage(failure):
        return False
    # The same definition is as invalid the next time, and the same steps lead to the same weights.
    if failure.type in (InvalidDefinition.__name__, NotFinite.__name__):
        return True
    return failure.raised and failure.same_as(before) and (failure.step is not None or failure.frames != ())
