"""Save and load checkpoints of a plain script, without experiments, trials or ranks.

Each save writes the next attempt number to its manifest. The newest checkpoint is the one saved last, whatever its
step, so that a script can start over, or continue from an older step, in the same directory or URL.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from kernel_backend.checkpoints.base import Checkpoints, Manifest
from kernel_backend.checkpoints.lock import single_writer
from kernel_backend.checkpoints.retention import expendable
from kernel_backend.checkpoints.storage import open_storage
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
    """Save a training state as the newest checkpoint, atomically.

    If the process dies before the function returns, earlier checkpoints are untouched. After the save, checkpoints
    that `keep` does not name are deleted; the two newest always stay.

    Parameters
    ----------
    where : str or PathLike
        Directory, or fsspec URL such as ``s3://bucket/runs``. Created if missing.
    state : Any
        Nested dicts, lists and tuples of tensors, numbers and strings. Tensors may be of any shape, on any device.
    step : int
        Training step, at least 0. It need not grow: the newest checkpoint is the one that was saved last.
    metrics : mapping of str to float, optional
        Validation metrics at this step.
    keep : Keep or str, default "best:1,latest:2"
        How many checkpoints to keep: the best by `metric`, and the newest.
    metric : Metric or str, default "loss"
        Name of the metric that makes the best checkpoint; ``accuracy:max`` where higher is better.

    Returns
    -------
    Manifest
        The manifest of the new checkpoint.

    Raises
    ------
    InvalidRequest
        `step` is negative or not an integer, or `keep` or `metric` cannot be read.
    Conflict
        Another process is saving into `where`.
    OSError
        The disk is full, or `where` cannot be written.

    Examples
    --------
    >>> import torch
    >>> from daylight import checkpoints
    >>> saved = checkpoints.save("runs/a", {"w": torch.zeros(2)}, step=10, metrics={"loss": 0.5})
    >>> saved.step, saved.metrics
    (10, {'loss': 0.5})
    """
    _check_step(step)
    rules = parse_keep(keep) if isinstance(keep, str) else keep
    judge = parse_metric(metric) if isinstance(metric, str) else metric
    place = _place(where)
    with single_writer(place.where):
        number = max((each.attempt for each in place.committed()), default=0) + 1
        place.sweep(number + 1)  # deletes what a killed save has left
        manifest = _write(place, _manifest(step, number, metrics or {}), state)
        for old in expendable(_as_saved(place), rules, judge):
            place.discard(old.id)
    return manifest


def load(where: str | os.PathLike[str], step: int | None = None) -> Any:
    """Load the state that was saved last, and verify every byte of it.

    A damaged checkpoint is renamed to ``.bad`` with a warning in the log, and the one before it is loaded.

    Parameters
    ----------
    where : str or PathLike
        Directory or fsspec URL that `save` was given.
    step : int, optional
        Load the newest checkpoint of this step; by default the newest of all.

    Returns
    -------
    Any
        The state as it was saved, with its tensors on the CPU.

    Raises
    ------
    NotFound
        There is no checkpoint, or none of this step.
    CheckpointDamaged
        All checkpoints, or all of this step, are damaged.

    Examples
    --------
    >>> import torch
    >>> from daylight import checkpoints
    >>> for step in 10, 20:
    ...     saved = checkpoints.save("runs/b", {"w": torch.full((2,), step)}, step)
    >>> checkpoints.load("runs/b")["w"]
    tensor([20, 20])
    >>> checkpoints.load("runs/b", step=10)["w"]
    tensor([10, 10])
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
    """Return the manifest of the checkpoint that was saved last, without reading its tensors.

    Parameters
    ----------
    where : str or PathLike
        Directory or fsspec URL that `save` was given.

    Returns
    -------
    Manifest or None
        The manifest, unverified; None if nothing has been saved.

    Examples
    --------
    >>> from daylight import checkpoints
    >>> checkpoints.latest("runs/c") is None
    True
    >>> saved = checkpoints.save("runs/c", {"epoch": 1}, step=100)
    >>> checkpoints.latest("runs/c").step
    100
    """
    saved = _as_saved(_place(where))
    return saved[-1] if saved else None


def _check_step(step: object) -> None:
    if not isinstance(step, int) or step < 0:
        raise InvalidRequest(f"step={step!r}: must be a whole number from 0 up")


def _place(where: str | os.PathLike[str]) -> Checkpoints:
    return open_storage(os.path.expanduser(os.fspath(where)))


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
