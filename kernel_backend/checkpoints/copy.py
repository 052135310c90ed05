"""Copy a trial's checkpoint to another trial, which starts from it (warm start)."""

from __future__ import annotations

from functools import partial

from kernel_backend.checkpoints.base import FROZEN, ORIGIN, Checkpoints, Manifest, Streamed, whose
from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.errors import CheckpointDamaged, NotFound
from kernel_backend.model.trial import BEFORE, MODEL, WEIGHTS, checkpoint_order, parse_beginning

_OF_TRAINING = ("optimizer", "schedule", "scaler", "random-")  # beginnings of the names of parts


def copy_checkpoint(
    storage: CheckpointStorage,
    source: str,
    place: Checkpoints,
    experiment: int,
    trial: int,
    *,
    or_newer: bool = False,
) -> None:
    """Copy the checkpoint `source`, such as `41.1/500-2`, to `place`, the storage of the trial `experiment`.`trial`.

    Every byte is verified, and the copy is committed last. For `41.1/500-2:weights` only the model's weights are copied
    (the averaged ones if there are any), as a checkpoint of step 0; for `41.1/500-2:model` all but what only a training
    needs, such as the optimizer's state.

    If the checkpoint was deleted and `or_newer` is set, a later one of the same trial is copied, since a
    running trial deletes old checkpoints. Raises NotFound if there is none to copy, CheckpointDamaged, and OSError.
    """
    owner, id, part = parse_beginning(source)
    number, index = map(int, owner.split("."))
    there = storage.open(number, index)
    deleted = f"checkpoint {id} of {owner}, from which this was to begin, has been deleted"
    while True:
        found = _chosen(there, id, or_newer and not part)
        if found is None:
            raise NotFound(deleted)
        whose = {"experiment": experiment, "trial": trial, "uid": storage.uid(experiment, trial)}
        copy = found.model_copy(update={**whose, "attempt": BEFORE})
        try:
            if part == MODEL:
                copy = _model(copy, f"{owner}/{found.id}")
            elif part == WEIGHTS:
                copy = _weights(copy)
            _copy(there, found, place, copy)
            return
        except NotFound as error:  # deleted meanwhile
            if not or_newer or part:
                raise NotFound(deleted) from error


def _chosen(there: Checkpoints, id: str, or_newer: bool) -> Manifest | None:
    committed = there.committed()
    newer = [manifest for manifest in committed if manifest.order > checkpoint_order(id)] if or_newer else []
    return next((manifest for manifest in committed if manifest.id == id), newer[-1] if newer else None)


def _weights(manifest: Manifest) -> Manifest:
    name = "ema" if "ema" in manifest.state else "model"  # the validation used the averaged weights
    parts = tuple(part for part in manifest.parts if whose(part.name) == name)
    state = {"model": manifest.state.get(name)}
    return manifest.model_copy(update={"step": 0, "epoch": 0.0, "metrics": {}, "parts": parts, "state": state})


def _model(manifest: Manifest, origin: str) -> Manifest:
    state = {name: each for name, each in manifest.state.items() if not name.startswith(_OF_TRAINING)}
    state[ORIGIN] = origin
    parts = tuple(part for part in manifest.parts if not whose(part.name).startswith(_OF_TRAINING))
    return manifest.model_copy(update={"step": 0, "metrics": {}, "parts": parts, "state": state})


def _copy(there: Checkpoints, found: Manifest, place: Checkpoints, copy: Manifest) -> None:
    for part in copy.parts:
        if part.name.endswith(FROZEN) and place.reuse(copy.id, part):
            continue
        pieces = Streamed(part.size, partial(there.stream, found, part.name))
        if place.write(copy.id, part.name, pieces) != part:
            raise CheckpointDamaged(f"{part.name} of checkpoint {found.id} has changed while it was copied")
    place.commit(copy)
