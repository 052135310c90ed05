"""Checkpoints for a plain script, without experiments, trials and ranks: `save`, `load` and `latest`.

Each save is one more attempt in the words of the manifest: the newest checkpoint is the one that was saved last,
whatever its step, so that a script may begin anew, or go on from an older step, in the same place.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from kernel_backend.checkpoints.alone import alone
from kernel_backend.checkpoints.base import Checkpoints, Manifest
from kernel_backend.checkpoints.places import open_place
from kernel_backend.checkpoints.retention import expendable
from kernel_backend.errors import CheckpointDamaged, InvalidRequest, NotFound
from kernel_backend.model.experiment import Keep, Metric, parse_keep, parse_metric

STATE = "state"

_log = logging.getLogger(__name__)


def save(
    where: str | os.PathLike[str],
    state: Any,
    step: int,
    *,
    metrics: Mapping[str, float] | None = None,
    keep: Keep | str = "best:1,latest:2",
    metric: Metric | str = "loss",
) -> Manifest:
    """Save a state of nested dicts, lists, tuples, tensors, numbers and strings as the newest checkpoint.

    It exists from one moment to the next: killed at any instant before, there are the older ones. Those that `keep`
    does not name are deleted then; `metric` (`loss`, `accuracy:max`) says which of the `metrics` makes the best, and
    the two newest always stay. One writer at a time: raises Conflict where another process saves into the same folder,
    and OSError where there is no room, leaving all older ones.
    """
    _check_step(step)
    rules = parse_keep(keep) if isinstance(keep, str) else keep
    judge = parse_metric(metric) if isinstance(metric, str) else metric
    place = _place(where)
    with alone(place.where):
        number = max((each.attempt for each in place.committed()), default=0) + 1
        place.sweep(number + 1)  # what a killed save has left
        manifest = _write(place, _manifest(step, number, metrics or {}), state)
        for old in expendable(_as_saved(place), rules, judge):
            place.discard(old.id)
    return manifest


def load(where: str | os.PathLike[str], step: int | None = None) -> Any:
    """The state that was saved last, or last at `step`, every byte of it verified; its tensors lie on the host.

    A damaged checkpoint is set aside, with a warning in the log, and the one before is taken. Raises CheckpointDamaged
    where no whole one is left, and NotFound where there is none.
    """
    place = _place(where)
    saved = _as_saved(place)
    damage: CheckpointDamaged | None = None
    for manifest in reversed([each for each in saved if step is None or each.step == step]):
        try:
            return _read(place, manifest)
        except CheckpointDamaged as error:
            _log.warning("%s; it is set aside", error.message)
            place.set_aside(manifest.id)
            damage = error
    if damage is not None:
        raise damage
    steps = ", ".join(str(each.step) for each in saved) or "none"
    asked = "" if step is None else f" at step {step}"
    raise NotFound(f"there is no checkpoint{asked} in {place.where}; steps that are there: {steps}")


def latest(where: str | os.PathLike[str]) -> Manifest | None:
    """The checkpoint that was saved last (`step`, `metrics`, `at`, ...), unverified; None where there is none."""
    saved = _as_saved(_place(where))
    return saved[-1] if saved else None


def _check_step(step: object) -> None:
    if not isinstance(step, int) or step < 0:
        raise InvalidRequest(f"step={step!r}: must be a whole number from 0 up")


def _place(where: str | os.PathLike[str]) -> Checkpoints:
    return open_place(os.path.expanduser(os.fspath(where)))


def _as_saved(place: Checkpoints) -> list[Manifest]:
    return sorted(place.committed(), key=lambda manifest: manifest.attempt)


def _manifest(step: int, number: int, metrics: Mapping[str, float]) -> Manifest:
    return Manifest(
        experiment=0,
        trial=0,
        attempt=number,
        step=step,
        epoch=0.0,
        at=time.time(),
        world=1,
        seed=0,
        params={},
        metrics={name: float(value) for name, value in metrics.items()},
        parts=(),
    )


def _write(place: Checkpoints, empty: Manifest, state: Any) -> Manifest:
    from kernel_backend.checkpoints.writer import flatten, pieces

    tree, tensors = flatten(state)
    try:
        part = place.write(empty.id, STATE, pieces(tensors))
        manifest = empty.model_copy(update={"parts": (part,), "state": {STATE: tree}})
        place.commit(manifest)
    except OSError:
        place.discard(empty.id)
        raise
    return manifest


def _read(place: Checkpoints, manifest: Manifest) -> Any:
    from kernel_backend.checkpoints.writer import decode, unflatten

    return unflatten(manifest.state[STATE], decode(place.read(manifest, STATE)))
