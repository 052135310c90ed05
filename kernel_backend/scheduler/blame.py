"""What an error says of itself: whether it would come once more, and whether it is anybody's at all."""

from __future__ import annotations

from typing import TypeGuard

from kernel_backend.errors import CheckpointFailed, PlaceUnavailable
from kernel_backend.model.trial import Failure


def unsaved(failure: Failure | None) -> TypeGuard[Failure]:
    """Whether all that is wrong is that the last checkpoint could not be written: a full disk, a silent store."""
    return failure is not None and failure.type == CheckpointFailed.__name__


def of_storage(failure: Failure | None) -> TypeGuard[Failure]:
    """Whether it is nobody's error in the training: its checkpoints cannot be written, or not be reached."""
    return unsaved(failure) or (failure is not None and failure.type == PlaceUnavailable.__name__)


def again(failure: Failure | None, before: Failure | None) -> TypeGuard[Failure]:
    """Whether it is the error of the attempt before, which comes from the code or the data: it would come once more.

    Before the first step only one in the user's own code is. Others are of what a training is begun with, the store of
    its checkpoints or the network, and these recover.
    """
    if failure is None or of_storage(failure):
        return False
    return failure.raised and failure.same_as(before) and (failure.step is not None or failure.frames != ())
