"""Define the interface behind `daylight.run`, which each form of training implements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol


class Methods(Protocol):
    """Implementation of `daylight.run` in a process: in a rank of a job, or in a notebook."""

    params: dict[str, Any]

    @property
    def rank(self) -> int:
        """Return the number of this rank, from 0."""

    @property
    def world(self) -> int:
        """Return the number of ranks."""

    @property
    def device(self) -> Any:
        """Return the device of this rank."""

    @property
    def step(self) -> int:
        """Return the number of steps taken before the current one."""

    @property
    def epoch(self) -> int:
        """Return the number of completed epochs."""

    @property
    def should_stop(self) -> bool:
        """Return True once the loop should stop, for instance after all steps."""

    def register(self, parts: Mapping[str, Any]) -> bool:
        """Register objects (`parts`, by name) whose state checkpoints hold, and restore them if there is a checkpoint.

        Returns True if training continues from a checkpoint.
        """

    def loader(
        self,
        dataset: Any,
        batch_size: int | None,
        shuffle: bool | None,
        collate: Any,
        workers: int | None,
        repeat: bool,
        validation: bool,
    ) -> Any:
        """Return an iterable of this rank's batches; `Run.loader` describes the arguments."""

    def epochs(self, count: int | None) -> Iterator[int]:
        """Yield the number of each epoch to train: `count` epochs in all, by default the number set by `--epochs`."""

    def steps(self, count: int | None) -> Iterator[int]:
        """Yield the number of each step to train: `count` steps in all, by default the number set by `--steps`."""

    def report(self, values: Mapping[str, Any], step: int | None, validation: bool, epoch: int | None = None) -> None:
        """Report metrics, `values` by name, of a step; for None of the current step.

        `epoch` is set only by code that counts its epochs itself.
        """

    def log(self, text: str) -> None:
        """Add a note to the trial, which is shown to the user."""

    def checkpoint(self, folder: Path | None = None) -> None:
        """Request a checkpoint; only in a shell command, `folder` may name a folder whose files are added to it."""

    def checkpoint_dir(self, below: Path) -> Path:
        """Return a subfolder of `below`, whose files become part of every checkpoint."""
