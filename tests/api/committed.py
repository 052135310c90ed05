"""Write real checkpoints into the folder of a service, as a rank would."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from kernel_backend.checkpoints.base import Manifest, checkpoint_id
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.checkpoints.writer import flatten, pieces
from kernel_backend.definition.script.parts import PART
from kernel_backend.store.sql import SqlStore


def folder(home: Path, trial: int = 1) -> Path:
    """Return the folder of the first experiment's checkpoints."""
    return home / "checkpoints" / "1" / str(trial)


def uid(home: Path) -> str:
    """Return the identity (uid) of trial 1.1."""
    store = SqlStore(home / "daylight.db")
    try:
        return store.trial_uid(1, 1)
    finally:
        store.close()


def commit(
    home: Path,
    step: int,
    attempt: int = 1,
    ema: float | None = None,
    modules: dict[str, Any] | None = None,
    **metrics: float,
) -> Path:
    """Commit a checkpoint of trial 1.1 with all weights equal to `step` (averaged: `ema`).

    `modules` are those of a program with a training loop. Return the file of its model part.
    """
    place = Directory(folder(home))
    states: dict[str, dict[str, Any]] = {"model": {"weight": torch.full((1, 2), float(step))}}
    if modules is not None:
        states[PART] = modules
    if ema is not None:
        states["ema"] = {"weight": torch.full((1, 2), ema)}
    state, parts = {}, []
    for name, values in states.items():
        state[name], tensors = flatten(values)
        parts.append(place.write(checkpoint_id(step, attempt), name, pieces(tensors)))
    manifest = Manifest(
        experiment=1, trial=1, uid=uid(home), attempt=attempt, step=step, epoch=step / 10, at=float(step), world=1,
        seed=0, params={"width": 2}, snapshot="0" * 64, metrics=metrics, parts=tuple(parts), state=state,
    )  # fmt: skip
    place.commit(manifest)
    return folder(home) / manifest.id / "model.safetensors"


def spoil(file: Path) -> None:
    """Flip one bit of a file's last byte, at a later time, so that a coarse clock shows the change."""
    data, written = bytearray(file.read_bytes()), file.stat().st_mtime_ns
    data[-1] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(written + 10**9, written + 10**9))


def names(home: Path) -> list[str]:
    """Return the names in the folder of checkpoints."""
    return sorted(each.name for each in folder(home).glob("*"))
