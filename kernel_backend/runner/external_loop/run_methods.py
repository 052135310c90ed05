"""Implement the methods of the user's object `run`, for a job and for a notebook."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, SequentialSampler

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.record import Value
from kernel_backend.runner.data import source
from kernel_backend.runner.external_loop.folder import FolderPart
from kernel_backend.runner.external_loop.parts import joined
from kernel_backend.runner.external_loop.user_loop import Loader, LoopSettings, Steps, UserLoop

MOST_NOTES = 100  # limit of notes by `run.log` per attempt, as each is stored with the experiment


class RunMethods:
    """Methods of the object `run` in user code, such as `run.epochs` and `run.report`, for a job or a notebook."""

    def __init__(self, training: Steps, settings: LoopSettings, params: Mapping[str, Value]) -> None:
        self.loop = UserLoop(training, settings)
        self.params = dict(params)
        self._training, self._settings = training, settings
        self.registered: dict[str, Any] = {}
        self._given: dict[str, Any] = {}  # as the user gave them, which may be a list of modules
        self._resumed = False
        self._logged = 0  # calls of `log`

    @property
    def rank(self) -> int:
        """Return the number of this rank."""
        return self._settings.rank

    @property
    def world(self) -> int:
        """Return the number of ranks."""
        return self._settings.world

    @property
    def device(self) -> torch.device:
        """Return the device of this rank."""
        return self._settings.device

    @property
    def step(self) -> int:
        """Return the number of completed steps; the current one is not counted."""
        return self._training.position.step

    @property
    def epoch(self) -> int:
        """Return the number of completed epochs."""
        return self._training.position.epoch

    @property
    def should_stop(self) -> bool:
        """Return True after `--steps` steps, or after `--patience` validations without improvement.

        Raises InvalidDefinition in a job that was submitted with neither option.
        """
        if not self._settings.in_job:
            return self._training.position.over
        if self._settings.config.steps is None and self._settings.config.patience is None:
            raise InvalidDefinition(
                "run.should_stop turns true after --steps N, or where --patience N ends, and neither is given"
            )
        return self._training.position.over

    def register(self, parts: Mapping[str, Any]) -> bool:
        """Register values by name, so that each checkpoint holds them; return True if any was restored from one.

        A list, tuple or dict of modules is registered as one module.
        """
        for name, value in parts.items():
            if self._given.get(name) is not value:
                self._given[name], held = value, joined(value)
                self._resumed = self._training.register(name, held) or self._resumed
                self.registered[name] = held
        return self._resumed

    def loader(
        self,
        dataset: Any,
        batch_size: int | None,
        shuffle: bool | None,
        collate: Any,
        workers: int | None,
        repeat: bool,
        validation: bool,
    ) -> Loader:
        """Return an iterable over this rank's batches of a dataset, for `run.loader`.

        An option that is None has its default value. With `repeat` the iterable yields the batches of all epochs, else
        those of one pass. `validation` is True for data that is not trained on.
        """
        try:
            found = source(dataset, "run.loader")
        except InvalidDefinition as error:
            text = error.message.replace("run.loader() returned", "run.loader() was given").replace("return", "give it")
            raise InvalidDefinition(text) from None
        if shuffle is None and isinstance(dataset, DataLoader):
            shuffle = not isinstance(dataset.sampler, SequentialSampler)
        if shuffle is False and not found.stream:
            found = found._replace(sampler=SequentialOrder(len(found.dataset)))
        if collate is not None:
            found = found._replace(collate=collate)
        config = self._settings.config
        size = batch_size or found.batch_size or config.batch_size
        whole = found.drop_last or (config.uneven == "drop" and not validation)
        return Loader(
            loop=self.loop,
            site=_site(),
            source=found._replace(batch_size=None, drop_last=whole),
            batch_size=size * (self._settings.world if config.per_slot_batch else 1),
            repeat=repeat,
            validation=validation,
            workers=self._settings.workers if workers is None else workers,
        )

    def epochs(self, count: int | None) -> Iterator[int]:
        """Yield epoch numbers from 0, `count` of them or by default `--epochs`.

        After a restart, begin with the interrupted epoch.
        """
        return self.loop.epochs(count)

    def steps(self, count: int | None) -> Iterator[int]:
        """Yield step numbers from 0, `count` of them or by default `--steps`.

        After a restart, begin with the interrupted step.
        """
        return self.loop.steps(_site(), count)

    def report(self, values: Mapping[str, Any], step: int | None, validation: bool, epoch: int | None = None) -> None:
        """Report values of a training step or, with `validation`, of a validation.

        `step` replaces the current step as their label. `epoch` is ignored, as the loop counts epochs itself.
        """
        self.loop.report(values, step, validation)

    def log(self, text: str) -> None:
        """Show the user a text.

        After the first `MOST_NOTES` texts of this process, further ones are only written to the log.
        """
        if self._settings.in_job:
            self._logged += 1
            if self._logged == MOST_NOTES + 1:
                self._settings.note(f"run.log was called {MOST_NOTES} times: later values are in the logs alone")
            if self._logged > MOST_NOTES:
                print(text)
                return
        self._settings.note(text)

    def checkpoint(self, folder: Path | None = None) -> None:
        """Request a checkpoint, which is saved at the end of the current step.

        Raises InvalidDefinition if a `folder` is given, as only shell commands have a checkpoint folder to copy it to.
        """
        if folder is not None:
            raise InvalidDefinition(f"run.checkpoint({str(folder)!r}): write the files to run.checkpoint_dir instead")
        self._training.request_checkpoint()

    def checkpoint_dir(self, below: Path) -> Path:
        """Return a folder for the user's files, which become part of every checkpoint.

        `below` is this process's own folder, in which the folder is created.
        """
        if "checkpoint_dir" not in self.registered:
            self.register({"checkpoint_dir": FolderPart(below / "checkpoint")})
        folder: Path = self.registered["checkpoint_dir"].folder
        return folder


class SequentialOrder:
    """Sampler that yields the indices of a dataset in ascending order."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._count))


def _site() -> str:
    """Return file name and line at which user code calls a method of `run`, such as `train.py line 12`.

    By this text, an iteration of the user's loop is found again in a checkpoint after a restart.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and "kernel_backend" in Path(frame.f_code.co_filename).parts:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name} line {frame.f_lineno}"
