"""Ways of saving a training that goes through the runner's loop: its own, torch.save and dcp.async_save."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from kernel_backend.runner.checkpoint.checkpointer import Checkpointer, Position
from kernel_backend.runner.loop.training import Training


class Way(Protocol):
    """A way of saving a training; the runner's loop calls `settle` before each update."""

    def save(self, position: Position) -> None:
        """Begin, or do it at once."""

    def settle(self) -> None:
        """The state is about to change."""

    def wait(self) -> None:
        """Return when the checkpoint is on the disk."""


class Peer:
    """Base class of the peers that save: a folder for each checkpoint, of which the newest stays."""

    def __init__(self, run: Training, folder: Path) -> None:
        self._run, self._folder = run, folder

    def _state(self) -> dict[str, Any]:
        return {"model": self._run.model.state_dict(), "optimizer": self._run.objectives[0].optimizers[""].state_dict()}

    def _fresh(self) -> Path:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        return self._folder / "checkpoint"

    def settle(self) -> None:
        """Nothing is under way that an update could harm."""

    def wait(self) -> None:
        """It is there already."""


class TorchSave(Peer):
    """torch.save, flushed to the disk."""

    def save(self, position: Position) -> None:
        """Write all of it."""
        with self._fresh().open("wb") as file:
            torch.save(self._state(), file)
            file.flush()
            os.fsync(file.fileno())


class AsyncSave(Peer):
    """dcp.async_save with what it chooses by itself: it copies, then writes in a thread."""

    def save(self, position: Position) -> None:
        """Copy."""
        saved = dcp.async_save(self._state(), checkpoint_id=self._fresh(), no_dist=True)
        self._written: Any = saved

    def wait(self) -> None:
        """Join its thread."""
        self._written.result()


class AsyncStaging(AsyncSave):
    """dcp.async_save with a stager that copies in a thread and keeps its buffers."""

    _stager: DefaultStager | None = None
    _staged: Any = None

    def save(self, position: Position) -> None:
        """Begin to copy."""
        if self._stager is None:
            gpu = self._run.device.type == "cuda"
            self._stager = DefaultStager(StagingOptions(gpu, False, True, gpu))
        saved: Any = dcp.async_save(self._state(), checkpoint_id=self._fresh(), no_dist=True, async_stager=self._stager)
        self._staged, self._written = saved.staging_completion, saved.upload_completion

    def settle(self) -> None:
        """Have the copy."""
        if self._staged is not None:
            self._staged.result()
            self._staged = None


class Daylight:
    """The runner's own."""

    def __init__(self, checkpoints: Checkpointer) -> None:
        self._checkpoints = checkpoints

    def save(self, position: Position) -> None:
        """Begin to copy."""
        self._checkpoints.save(position)

    def settle(self) -> None:
        """Have the copy, and begin to write."""
        self._checkpoints.settle()

    def wait(self) -> None:
        """Poll: the runner itself never waits for it."""
        while self._checkpoints.busy:
            time.sleep(0.005)


class Nobody(Peer):
    """No checkpoint: what the others are compared with."""

    def save(self, position: Position) -> None:
        """Save nothing."""


class Timed:
    """A way whose calls are timed, in the place of the loop's own checkpoints."""

    due = False  # no copy has to be taken again

    def __init__(self, way: Way) -> None:
        self._way, self.blocked = way, 0.0

    def save(self, position: Position) -> None:
        """Begin."""
        began = time.perf_counter()
        self._way.save(position)
        self.blocked += time.perf_counter() - began

    def settle(self) -> None:
        """The state is about to change."""
        began = time.perf_counter()
        self._way.settle()
        self.blocked += time.perf_counter() - began
