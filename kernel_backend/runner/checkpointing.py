"""What a checkpoint of a training holds, how the ranks write it together, and how it comes back to the last bit.

Model and optimizer are equal on all ranks: rank 0 writes them. Buffers (BatchNorm's statistics) are each rank's own,
and each writes its own. Random states are not in it: they follow from seed and step. So does the place in the data.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.checkpoints import retention
from kernel_backend.checkpoints.base import Manifest, Part, checkpoint_id
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.checkpoints.writer import MODEL, OPTIMIZER, decode, encode, flatten, unflatten
from kernel_backend.model.job import Job
from kernel_backend.model.reports import Committed, Note
from kernel_backend.runner.link import Spool
from kernel_backend.runner.ranks import Ranks


class Checkpointer:
    """Saves and restores one training; every method is called by all ranks at the same step."""

    def __init__(
        self, job: Job, ranks: Ranks, spool: Spool, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        self._job, self._ranks, self._spool = job, ranks, spool
        self._model, self._optimizer = model, optimizer
        self._home = Directory(Path(job.checkpoints))
        self._newest: str | None = None  # the newest that is known to be whole

    def save(self, step: int, epoch: float, last: bool) -> None:
        """Commit a checkpoint after step `step`; returns when it exists, or when all ranks know that it cannot.

        A full disk costs a checkpoint and never the training: rank 0 then notes a warning. `last` tells that no
        other will follow.
        """
        began = time.monotonic()
        name = checkpoint_id(step, self._job.attempt)
        if name == self._newest:
            return
        state, written = self._write(name)
        everyones = self._ranks.all_gather_object(written)
        problem = next((answer for answer in everyones if isinstance(answer, str)), None)
        if self._ranks.rank == 0:
            manifest = self._manifest(step, epoch, state, everyones) if problem is None else None
            problem = problem if manifest is None else self._commit(manifest, time.monotonic() - began)
            if problem is not None:
                self._give_up(name, step, problem, last)
        # Nobody goes on, and so nobody exits, before the manifest is in place.
        if self._ranks.broadcast_object(problem) is None:
            self._newest = name

    def restore(self) -> Manifest | None:
        """Bring back the pinned checkpoint, or the one before where it is damaged; None where training begins anew."""
        chosen = self._choose() if self._ranks.rank == 0 else None
        manifest: Manifest | None = self._ranks.broadcast_object(chosen)
        if manifest is not None:
            self._load(manifest)
            self._newest = manifest.id
        return manifest

    def _write(self, name: str) -> tuple[dict[str, Any], list[Part] | str]:
        """This rank's parts on the disk, or a sentence about why they are not; and the state of rank 0."""
        state, parts = self._parts()
        size = 0
        try:
            written = []
            for part, tensors in parts.items():
                data = encode(tensors)
                size = len(data)
                written.append(self._home.write(name, part, data))
            return state, written
        except OSError as error:
            return state, f"{error.strerror} ({size / 1e6:.1f} MB needed in {self._job.checkpoints})"

    def _parts(self) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
        state: dict[str, Any] = {}
        parts: dict[str, dict[str, Tensor]] = {}
        if self._ranks.rank == 0:
            state[MODEL], parts[MODEL] = flatten(dict(self._model.state_dict()))
            state[OPTIMIZER], parts[OPTIMIZER] = flatten(self._optimizer.state_dict())
        if buffers := dict(self._model.named_buffers()):
            parts[f"buffers-{self._ranks.rank}"] = buffers
        return state, parts

    def _manifest(self, step: int, epoch: float, state: dict[str, Any], everyones: list[list[Part]]) -> Manifest:
        return Manifest(
            experiment=self._job.experiment,
            trial=self._job.trial,
            attempt=self._job.attempt,
            step=step,
            epoch=epoch,
            at=time.time(),
            world=self._ranks.size,
            seed=self._job.config.seed,
            params=self._job.params,
            parts=tuple(part for parts in everyones for part in parts),
            state=state,
        )

    def _commit(self, manifest: Manifest, seconds: float) -> str | None:
        """Commit and apply retention; a sentence where that failed."""
        try:
            self._home.commit(manifest)
        except OSError as error:
            return f"{error.strerror} (writing its manifest in {self._job.checkpoints})"
        said = Committed(
            id=manifest.id, step=manifest.step, epoch=manifest.epoch, bytes=manifest.bytes, seconds=seconds
        )
        self._spool.say(said)
        self._prune(retention.KEEP)
        return None

    def _give_up(self, name: str, step: int, problem: str, last: bool) -> None:
        self._home.discard(name)
        self._prune(retention.LEAST)  # room for the next try
        then = f"the newest is {self._newest or 'none'}" if last else "training goes on"
        text = f"checkpoint at step {step} could not be written: {problem}; {then}"
        self._spool.say(Note(level="warning", text=text))

    def _prune(self, keep: int) -> None:
        for old in retention.expendable(self._home.committed(), keep):
            self._home.discard(old.id)

    def _choose(self) -> Manifest | None:
        self._home.sweep(self._job.attempt)
        pinned = self._job.resume_from
        if pinned is None:
            return None
        step, attempt = map(int, pinned.split("-"))
        found, problems = self._home.newest_verified(fence=self._job.attempt, upto=(step, attempt))
        if found is None or found.id != pinned:
            what = "; ".join(problems) or f"checkpoint {pinned} is not in {self._job.checkpoints}"
            start = f"checkpoint {found.id}" if found else "the beginning"
            again = f"steps {found.step + 1 if found else 1} to {step} are trained again"
            self._spool.say(Note(level="warning", text=f"{what}; training goes on from {start}, {again}"))
        return found

    def _load(self, manifest: Manifest) -> None:
        tensors = decode(self._home.read(manifest, MODEL))
        self._model.load_state_dict(unflatten(manifest.state[MODEL], tensors))
        tensors = decode(self._home.read(manifest, OPTIMIZER))
        load_optimizer(self._optimizer, unflatten(manifest.state[OPTIMIZER], tensors))
        mine = f"buffers-{self._ranks.rank}"
        part = mine if manifest.part(mine) else "buffers-0"
        if manifest.part(part):
            saved = decode(self._home.read(manifest, part))
            for name, buffer in self._model.named_buffers():
                buffer.copy_(saved[name])


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a `state_dict` as it was saved: torch's own loading casts float32 states of half-precision parameters."""
    optimizer.load_state_dict(state)
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    indices = [index for group in state["param_groups"] for index in group["params"]]
    for parameter, index in zip(parameters, indices, strict=True):
        for key, saved in state["state"].get(index, {}).items():
            loaded = optimizer.state[parameter][key]
            if isinstance(saved, Tensor) and loaded.dtype != saved.dtype:
                optimizer.state[parameter][key] = saved.to(loaded.device)
