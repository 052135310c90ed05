"""Implement `run.epochs`, `run.steps` and `run.loader` of a user's own loop, which resume where a checkpoint was saved.

The position is the number of items that each iteration has yielded, by the source line of its call. An iteration counts
from the start of the epoch if it is within `run.epochs`, else from the start of the training. The outermost iteration
below `run.epochs` counts the steps: when it yields its next item, the step before ends. Iterations within it, such as a
second loader, only keep their position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config
from kernel_backend.model.reports import Kind
from kernel_backend.runner.data import Batch, Batches, Source
from kernel_backend.runner.data.auto_workers import AutoWorkers
from kernel_backend.runner.data.shares import BatchSplit
from kernel_backend.runner.determinism import seeds
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.external_loop.training import LoopPosition
from kernel_backend.runner.loop.forward import to_device


class Steps(Protocol):
    """Training whose steps and epochs a user's loop begins and ends by these methods, in a job or in a notebook."""

    position: LoopPosition
    in_step: bool
    form_state: Callable[[], dict[str, Any]]
    expected_steps: int | None  # of the whole training, if known before it begins

    @property
    def needs_pairs(self) -> bool:
        """Return True if a registered module has BatchNorm, for which a batch needs at least two samples."""

    def begin(self) -> None:
        """Restore random states before the first step; do nothing on later calls."""

    def register(self, name: str, value: Any) -> bool:
        """Make a value part of each checkpoint; return True if it was restored from one."""

    def request_checkpoint(self) -> None:
        """Request a checkpoint, which is saved at the next step boundary."""

    def begin_step(self, samples: tuple[int, int] | None = None) -> None:
        """Begin a step; `samples` are the sample counts of this rank and the global batch, None for equal shares."""

    def end_step(self, last: bool = False) -> None:
        """End a step: report, save or stop if the ranks agree to; `last` is True for the last step of an epoch."""

    def abandon_step(self) -> None:
        """End a step that the loop has left early, as with `break`, without reporting or saving."""

    def end_epoch(self, last: bool = False) -> None:
        """End an epoch: report, save or stop if the ranks agree to; `last` is True for the last epoch."""

    def report(
        self, kind: Kind, values: Mapping[str, Any], step: int | None = None, weight: float | None = None
    ) -> None:
        """Report values of the current step.

        `step` replaces the current step as their label; `weight` is the number of samples of which they are means.
        """

    def take(self, batch: Batch) -> None:
        """Add the samples of a training batch to the record of the first epoch; do nothing in later epochs."""

    def tick_validation(self) -> None:
        """Write a heartbeat during a validation, so that the launcher does not consider it a hang."""


class LoopSettings(NamedTuple):
    """Settings of one process for the loops over `run.epochs`, `run.steps` and `run.loader`.

    They include the job's configuration, and the rank and device of this process.
    """

    config: Config
    rank: int
    world: int
    device: torch.device
    note: Callable[[str], None]
    targets: bool = False  # a search sets how far this trial trains
    workers: int | AutoWorkers | None = None  # loader processes, unless a loader says another number
    limit: Callable[[str], None] = lambda _: None  # receives why the training is not known to be exact
    in_job: bool = True  # if False, repeating a loop at the same line begins another training


@dataclass(frozen=True)
class Loader:
    """Iterable over this rank's batches of a dataset, from `run.loader`: one pass or, with `repeat`, all epochs."""

    loop: UserLoop
    site: str  # source line of the call
    source: Source
    batch_size: int
    repeat: bool
    validation: bool
    workers: int | AutoWorkers | None

    def __iter__(self) -> Iterator[Any]:
        return self.loop.batches(self)

    def __len__(self) -> int:
        """Return the number of batches that a pass yields; raise TypeError for a stream, whose length is unknown.

        So a sum over the batches of a validation, divided by it, is a mean on each rank.
        """
        samples, (rank, world) = len(self.source.dataset), self.loop.sharing(self)
        cut = BatchSplit(self.batch_size, self.source.drop_last, range(rank, rank + 1), world)
        count = cut.per_epoch(samples)
        lacks = self.validation and count > 0 and not cut.own_samples(cut.used(samples) - (count - 1) * cut.size)
        return count - lacks

    def same_data(self, other: Loader) -> bool:
        """Return True if `other` reads the same dataset in the same way, so that both can share worker processes."""
        return self.source.dataset is other.source.dataset and replace(self, source=other.source) == other


class _Iteration:
    """Progress of one iteration of the user's loop: the number of items yielded and, for a stream, its position."""

    def __init__(self, saved: Mapping[str, Any], follows: bool, is_loader: bool) -> None:
        self.taken: int = saved.get("taken", 0)
        self.left: bool = saved.get("left", False)  # left by `break`
        self.ended = self.left  # left, or exhausted
        self.epoch_due: bool = saved.get("epoch_due", False)  # the newest item was the last of an epoch
        self.data: dict[str, Any] = saved.get("data", {})
        self.follows, self.is_loader = follows, is_loader
        self.active = True
        self.batches: Batches | None = None

    def state(self, drives: bool) -> dict[str, Any]:
        data = self.batches.state() if self.batches is not None else {}
        own = {"taken": self.taken, "left": self.left, "epoch_due": self.epoch_due, "data": data}
        return own | {"drives": drives}


class UserLoop:
    """All iterations over `run.epochs`, `run.steps` and `run.loader` in a user's loop, with the progress of each."""

    def __init__(self, training: Steps, settings: LoopSettings) -> None:
        self.training, self._settings = training, settings
        self._saved: dict[str, dict[str, Any]] = training.position.form.get("iterations", {})
        self._scope: dict[str, _Iteration] = {}  # iterations begun in this epoch, or training, by line
        self._driver: _Iteration | None = None  # the iteration that counts the steps
        self._in_epochs = False
        self._used = False  # an iteration or a framework takes the steps, so that reports do not end them
        self._loaders = 0  # number of loaders begun in this step, epoch or training
        self._validated = 0.0  # samples read by validation loaders since the last reported validation
        self._trained_on = 0.0  # samples of this rank's training batches in this epoch
        self._open: dict[tuple[str, int], tuple[Loader, Batches]] = {}
        training.form_state = self._state

    def epochs(self, count: int | None) -> Iterator[int]:
        """Yield epoch numbers from 0 to before `count`, by default `--epochs`.

        After a restart, begin with the epoch in which the checkpoint was saved.
        """
        total = self._settings.config.epochs if count is None else count
        if self._in_epochs or self._driver is not None:
            raise InvalidDefinition("run.epochs() is called within another iteration of run: it is the outermost loop")
        self._must_fit("epochs", total)
        if not self._settings.in_job:
            self._begin_anew()
        position, training, before_epochs = self.training.position, self.training, self._loaders
        self._used = self._in_epochs = True
        try:
            while position.epoch < total and not position.over:
                before, self._loaders, self._trained_on = position.step, before_epochs, 0.0
                if not self._saved:
                    training.begin()
                training.in_step = True  # without steps within it, the epoch counts as one step
                yield position.epoch
                if position.over:
                    return
                if position.step == before and training.in_step:
                    training.abandon_step()
                training.in_step = False
                self._scope, self._saved = {}, {}
                training.end_epoch(last=position.epoch == total - 1)
        finally:
            self._in_epochs = False

    def steps(self, site: str, count: int | None) -> Iterator[int]:
        """Yield step numbers from 0 to before `count`, by default `--steps`.

        After a restart, steps that were taken before the checkpoint are left out. `site` is file and line of the user's
        call, by which the iteration is found again after a restart.
        """
        total = self._settings.config.steps if count is None else count
        if total is None:
            raise InvalidDefinition("run.steps() has no number: write run.steps(1000), or give --steps 1000")
        self._must_fit("steps", total)
        if self._driver is None and not self._in_epochs:
            self.training.expected_steps = total
        with self._iterating(site, is_loader=False) as iteration:
            for number in range(iteration.taken, total):
                if self._stops(iteration):
                    return
                if iteration is self._driver:  # outside of run.epochs(), this loop counts as one epoch in curves
                    self.training.position.fraction = (number + 1) / total
                yield from self._given(iteration, number, None, last=number == total - 1)

    def batches(self, loader: Loader) -> Iterator[Any]:
        """Yield this rank's batches of one pass or, if the loader is the outermost iteration, of all epochs."""
        if loader.validation:
            yield from self._validation(loader, self._ordinal())
            return
        with self._iterating(loader.site, is_loader=True) as iteration:
            yield from self._trained(loader, self._ordinal(), iteration)

    def report(self, values: Mapping[str, Any], step: int | None, validation: bool) -> None:
        """Report values of a training step or, with `validation`, of a validation.

        If the user's loop uses none of `run.epochs`, `run.steps` and `run.loader`, each report also ends a step.
        """
        alone = not self._used
        if alone:
            self.training.begin_step()
            steps = self._settings.config.steps
            self.training.position.fraction = (self.training.position.step + 1) / (steps or 1)
        weight = None
        if validation:
            weight, self._validated = self._validated or None, 0.0
        elif self._in_epochs and not self.training.in_step:  # between two steps, such as at the end of the epoch
            weight = self._trained_on or None
        self.training.report("validation" if validation else "training", values, step, weight)
        if alone:
            self.training.end_step()

    def leave_steps(self) -> None:
        """Let a framework's loop count the steps instead of this object, so that reports do not end steps."""
        self._used = True

    def close(self) -> None:
        """Stop loader workers."""
        for _, data in self._open.values():
            data.close()
        self._open = {}

    # Positions

    def _state(self) -> dict[str, Any]:
        return {"iterations": {site: each.state(each is self._driver) for site, each in self._scope.items()}}

    @contextmanager
    def _iterating(self, site: str, is_loader: bool) -> Iterator[_Iteration]:
        """Begin an iteration over `run.steps` or a loader, where the checkpoint left it, for the `with` block.

        `site` is file and line of the user's call. The outermost iteration counts the training's steps. Raises
        InvalidDefinition if the outermost iteration begins a second time in an epoch or, without `run.epochs`, in a
        job: a restart could not tell the passes apart.
        """
        number = sum(each.partition("#")[0] == site for each in self._scope)
        drives = self._driver is None
        if number and drives and not self._settings.in_job and not self._in_epochs:
            number = 0
            self._begin_anew()
        if number and drives:
            where = "within one epoch" if self._in_epochs else "outside of run.epochs()"
            raise InvalidDefinition(
                f"{site} begins a second time {where}, so a restart could not tell in which pass it was: write "
                "`for epoch in run.epochs(10):` for the outer loop"
            )
        key = f"{site}#{number}" if number else site
        resumes = bool(self._saved)
        saved = self._saved.pop(key, {})
        if drives and (saved.get("drives") or not resumes):
            self.training.begin()
        iteration = self._scope[key] = _Iteration(saved, follows=not drives, is_loader=is_loader)
        self._used = True
        if drives:
            self._driver, self.training.in_step = iteration, False
        try:
            yield iteration
        finally:
            iteration.active, iteration.ended, iteration.batches = False, True, None
            if drives:
                self._driver = None

    def _begin_anew(self) -> None:
        position = self.training.position
        position.step, position.epoch, position.over = 0, 0, False
        self._scope, self._loaders = {}, 0

    def _ordinal(self) -> int:
        """Return the number of loaders that began before this one in the present step, epoch or training, and count it.

        A loader's random order is seeded with that number, so that several loaders differ.
        """
        self._loaders += 1
        return self._loaders - 1

    def _given(
        self, iteration: _Iteration, item: Any, samples: tuple[int, int] | None, last: bool, batch: Batch | None = None
    ) -> Iterator[Any]:
        """Yield `item`, the next item of an iteration, to the user's loop.

        If this iteration counts the training's steps, a step begins before the item, and ends when the loop requests
        the next one. `samples` are the sample counts of this rank and of the global batch; `last` marks the last item
        of an epoch. `batch` is the training batch to record, if any.
        """
        drives = iteration is self._driver
        if drives:
            loaders = self._loaders
            self.training.begin_step(samples)
        else:
            iteration.taken += 1  # counted when yielded, as another iteration ends the step
        complete = False
        try:
            yield item
            complete = True
        finally:
            iteration.taken += drives
            if not complete and drives:  # left by `break`: the step counts, and the ranks agree at the next boundary
                iteration.left = iteration.ended = True
                self.training.abandon_step()
        if drives:
            self._loaders = loaders
            self._scope = {key: each for key, each in self._scope.items() if each.active or not each.follows}
            if batch is not None:
                self.training.take(batch)
            self.training.end_step(last)

    def _stops(self, iteration: _Iteration) -> bool:
        return iteration.ended or (iteration is self._driver and self.training.position.over)

    # Data

    def _trained(self, loader: Loader, ordinal: int, iteration: _Iteration) -> Iterator[Any]:
        drives, position = iteration is self._driver, self.training.position
        inner = self._in_epochs or (self._driver is not None and not self._driver.is_loader)
        if iteration.epoch_due and not inner:  # the last attempt ended between the last step and the end of its epoch
            iteration.epoch_due = False
            self.training.end_epoch()
        if self._stops(iteration):
            return
        number = (position.epoch if drives or self._steps_are_epochs else position.step) if inner else 0
        total = 1 if inner else self._settings.config.epochs
        data = self._data(loader, ordinal, number if loader.source.stream else 0)
        iteration.batches = data
        for index, batch in self._read(loader, data, iteration, 0 if loader.repeat else number, total):
            if index >= total and not loader.repeat:  # a stream whose saved position is the end of its pass
                return
            ends = batch.last and not loader.repeat
            last = ends and (inner or index == total - 1)
            iteration.epoch_due = ends and not inner
            if drives and data.per_epoch:
                done = (iteration.taken % data.per_epoch + 1) / data.per_epoch
                position.fraction = max(position.fraction, done) if self._in_epochs else done  # of several loaders
            samples = data.own_samples(batch.total), batch.total
            self._trained_on += samples[0]
            watched = batch if ordinal == 0 and not loader.repeat else None
            yield from self._given(iteration, to_device(batch.data, self._settings.device), samples, last, watched)
            if iteration.ended:
                return
            if drives and iteration.epoch_due:
                iteration.epoch_due = False
                self.training.end_epoch(last)
            if last or self._stops(iteration):
                return

    @property
    def _steps_are_epochs(self) -> bool:
        return self._in_epochs and self._driver is not None and self._driver.is_loader

    def _read(
        self, loader: Loader, data: Batches, iteration: _Iteration, number: int, total: int
    ) -> Iterator[tuple[int, Batch]]:
        """Yield this rank's share of each batch, from where `iteration` is in pass `number` on.

        Each comes with the number of passes since pass `number`, 0 in the first. `total` is the number of passes to
        read.
        """
        begin = 0 if data.is_stream else number * (data.per_epoch or 0)
        if data.is_stream and iteration.data:
            data.restore(iteration.data)
        elif data.is_stream and number:
            data.restore({"place": {"epoch": number}, "tensors": ""})
        bounded = not loader.repeat and not data.is_stream
        until = begin + total * (data.per_epoch or 0) if bounded else None
        steps = data.steps(begin + iteration.taken, until)
        for (batch,) in RandomStates().isolated(steps) if data.disturbs else steps:
            yield batch.epoch - number, batch

    def _validation(self, loader: Loader, ordinal: int) -> Iterator[Any]:
        data = self._data(loader, ordinal, 0)
        for (batch,) in data.in_order():
            self.training.tick_validation()
            if batch.samples:
                self._validated += batch.samples
                yield to_device(batch.data, self._settings.device)

    def _data(self, loader: Loader, ordinal: int, number: int) -> Batches:
        """Return the source of the batches that a loader yields.

        `ordinal` (see `_ordinal`) and the number of the pass determine the random order. Where possible, the worker
        processes of the loader's earlier pass are reused.
        """
        known = self._open.get((loader.site, ordinal))
        if known is not None and not loader.source.stream and known[0].same_data(loader):
            return known[1]
        if known is not None:
            known[1].close()
        settings = self._settings
        seed = settings.config.seed
        if ordinal:
            seed = seeds.mix(seed, "loader", ordinal)
        if number:
            seed = seeds.mix(seed, "pass", number)
        rank, world = self.sharing(loader)
        data = Batches(
            loader.source,
            loader.batch_size,
            seed,
            "validation" if loader.validation else "sample",
            range(rank, rank + 1),
            world,
            # One loader is tuned, as all of them share the measured time.
            None if ordinal and isinstance(loader.workers, AutoWorkers) else loader.workers,
            settings.device,
            settings.note,
            digested=ordinal == 0 and not loader.validation,
            filled=not loader.validation,
            limit=settings.limit,
        )
        if self.training.needs_pairs and not loader.validation:
            data.keep_pairs()
        self._open[loader.site, ordinal] = loader, data
        return data

    def sharing(self, loader: Loader) -> tuple[int, int]:
        """Return which share of a loader's batches this rank reads, and of how many.

        A validation whose batches have fewer samples than there are ranks cannot be shared, as a rank would have no
        sample: each rank reads all of it.
        """
        rank, world = self._settings.rank, self._settings.world
        length = loader.source.length
        fewest = loader.batch_size if length is None else min(loader.batch_size, length)
        return (0, 1) if loader.validation and fewest < world else (rank, world)

    def _must_fit(self, what: str, total: int) -> None:
        """Raise InvalidDefinition if this loop's length differs from the one by which a search compares its trials.

        `what` is the unit, "steps" or "epochs"; `total` is the loop's length in it.
        """
        config = self._settings.config
        wanted = config.steps if what == "steps" else (None if config.steps is not None else config.epochs)
        if self._settings.targets and not (self._in_epochs and what == "steps") and total != wanted:
            raise InvalidDefinition(
                f"run.{what}({total}): this search compares trials on their way, by --{what}, which is "
                f"{wanted or 'not given'}: write run.{what}(), and --{what} {total} on the first line"
            )
