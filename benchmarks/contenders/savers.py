"""Save a training of the runner's loop in several ways: by the runner, torch.save and dcp.async_save."""

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
        """Save a checkpoint, or begin to."""

    def settle(self) -> None:
        """Prepare for an update of the state, which is called before each."""

    def wait(self) -> None:
        """Wait until the checkpoint is on the disk."""


class Peer:
    """Base class of the contenders that write a folder for each checkpoint, and keep the newest."""

    def __init__(self, run: Training, folder: Path) -> None:
        self._run, self._folder = run, folder

    def _state(self) -> dict[str, Any]:
        return {"model": self._run.model.state_dict(), "optimizer": self._run.objectives[0].optimizers[""].state_dict()}

    def _fresh(self) -> Path:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        return self._folder / "checkpoint"

    def settle(self) -> None:
        """Do nothing: no save is in progress that an update could harm."""

    def wait(self) -> None:
        """Do nothing: the checkpoint is already on the disk."""


class TorchSave(Peer):
    """Save with torch.save, flushed to the disk."""

    def save(self, position: Position) -> None:
        """Write the whole checkpoint."""
        with self._fresh().open("wb") as file:
            torch.save(self._state(), file)
            file.flush()
            os.fsync(file.fileno())


class AsyncSave(Peer):
    """Save with dcp.async_save at its defaults: it copies the state, then writes it in a thread."""

    def save(self, position: Position) -> None:
        """Copy the state, and begin to write it."""
        saved = dcp.async_save(self._state(), checkpoint_id=self._fresh(), no_dist=True)
        self._written: Any = saved

    def wait(self) -> None:
        """Wait for the thread that writes."""
        self._written.result()


class AsyncStaging(AsyncSave):
    """Save with dcp.async_save and a stager that copies in a thread and reuses its buffers."""

    _stager: DefaultStager | None = None
    _staged: Any = None

    def save(self, position: Position) -> None:
        """Begin to copy the state."""
        if self._stager is None:
            gpu = self._run.device.type == "cuda"
            self._stager = DefaultStager(StagingOptions(gpu, False, True, gpu))
        saved: Any = dcp.async_save(self._state(), checkpoint_id=self._fresh(), no_dist=True, async_stager=self._stager)
        self._staged, self._written = saved.staging_completion, saved.upload_completion

    def settle(self) -> None:
        """Wait until the state is copied."""
        if self._staged is not None:
            self._staged.result()
            self._staged = None


class Daylight:
    """Save with the runner's own checkpoints."""

    def __init__(self, checkpoints: Checkpointer) -> None:
        self._checkpoints = checkpoints

    def save(self, position: Position) -> None:
        """Begin to copy the state."""
        self._checkpoints.save(position)

    def settle(self) -> None:
        """Wait until the state is copied, then begin to write it."""
        self._checkpoints.settle()

    def wait(self) -> None:
        """Poll until the checkpoint is on the disk; the runner itself never waits for that."""
        while self._checkpoints.busy:
            time.sleep(0.005)


class Nobody(Peer):
    """Take no checkpoint; the other ways are compared with this one."""

    def save(self, position: Position) -> None:
        """Save nothing."""


class Timed:
    """Measure the calls of another way, in the place of the loop's own checkpoints."""

    due = False  # no copy has to be taken again

    def __init__(self, way: Way) -> None:
        self._way, self.blocked = way, 0.0

    def save(self, position: Position) -> None:
        """Begin a checkpoint, and measure the time."""
        began = time.perf_counter()
        self._way.save(position)
        self.blocked += time.perf_counter() - began

    def settle(self) -> None:
        """Prepare for an update of the state, and measure the time."""
        began = time.perf_counter()
        self._way.settle()
        self.blocked += time.perf_counter() - began
