"""One trial's checkpoint as the beginning of another."""

from __future__ import annotations

from functools import partial

from kernel_backend.checkpoints.base import Checkpoints, Streamed
from kernel_backend.checkpoints.places import Places
from kernel_backend.errors import CheckpointDamaged, NotFound

BEFORE = 0  # the number of the attempt that it is told to be of: before the first


def take_over(places: Places, source: str, place: Checkpoints, experiment: int, trial: int) -> None:
    """Copy checkpoint `41.1/500-2` to the place of a trial, every byte verified; its last act is the commit.

    Raises NotFound where it is gone, CheckpointDamaged, OSError.
    """
    owner, _, id = source.partition("/")
    number, index = map(int, owner.split("."))
    there = places.open(number, index)
    found = next((manifest for manifest in there.committed() if manifest.id == id), None)
    if found is None:
        raise NotFound(f"checkpoint {id} of {owner}, from which this was to begin, has been deleted")
    copy = found.model_copy(update={"experiment": experiment, "trial": trial, "attempt": BEFORE})
    for part in found.parts:
        pieces = Streamed(part.size, partial(there.stream, found, part.name))
        if place.write(copy.id, part.name, pieces) != part:
            raise CheckpointDamaged(f"{part.name} of checkpoint {source} has changed while it was copied")
    place.commit(copy)
