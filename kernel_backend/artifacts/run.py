"""Define `daylight.run`, through which users' functions save artifacts and users' own training loops train."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernel_backend.artifacts.media import write_image, write_table
from kernel_backend.artifacts.methods import Methods
from kernel_backend.artifacts.write import look
from kernel_backend.errors import InvalidRequest

Writer = Callable[[str, Path], None]


class Run:
    """Interface of users' code to the training in this process; `daylight.run` is the single instance.

    `train(run, ...)` is a loop of the user's own: it restores, iterates and reports through this object. In a
    notebook the same calls train in the kernel and print their reports, and nothing is saved.

    Examples
    --------
    >>> from daylight import run
    >>> def train(run, lr=0.1):
    ...     state = {"x": 1.0}
    ...     run.restore(state=state)
    ...     for step in run.steps(3):
    ...         state["x"] -= lr * 2 * state["x"]
    ...         run.report(x=state["x"])
    >>> train(run)
    training at step 1: x 0.8
    training at step 2: x 0.64
    training at step 3: x 0.512
    >>> run.folder.is_dir()
    True
    """

    def __init__(self) -> None:
        self._write: Writer | None = _say
        self._process: int | None = None  # the process that trains; None: no training has begun
        self._folder: Path | None = None
        self._methods: Methods | None = None
        self._local: Callable[[], Methods] | None = None

    # A user's own training loop

    @property
    def params(self) -> dict[str, Any]:
        """Return the hyperparameters of the trial by name; empty in a notebook."""
        return dict(self._does.params)

    @property
    def rank(self) -> int:
        """Return the number of this rank, from 0."""
        return self._does.rank

    @property
    def world(self) -> int:
        """Return the number of ranks."""
        return self._does.world

    @property
    def device(self) -> Any:
        """Return the `torch.device` of this rank."""
        return self._does.device

    @property
    def step(self) -> int:
        """Return the number of steps taken before the current one."""
        return self._does.step

    @property
    def epoch(self) -> int:
        """Return the number of completed epochs."""
        return self._does.epoch

    @property
    def should_stop(self) -> bool:
        """Return True once `--steps` are taken or `--patience` is used up, for a loop that counts steps itself."""
        return self._does.should_stop

    def restore(self, **parts: Any) -> bool:
        """Register the state that checkpoints hold, and restore it if this training was interrupted before.

        Modules start with rank 0's weights, and their gradients are averaged over the slots in every `backward()`.

        Parameters
        ----------
        **parts : Any
            Modules, optimizers, schedules, scalers, random generators, tensors, dicts and lists of plain values, and
            objects with `state_dict` and `load_state_dict`, each under a name of its own. Each is restored in place.

        Returns
        -------
        bool
            True if training continues from a checkpoint.

        Raises
        ------
        InvalidDefinition
            A value has no state that can be saved, or a name is used twice.
        """
        return self._does.register(parts)

    def register(self, **parts: Any) -> bool:
        """Register more state, like `restore`, for objects that are created later.

        Parameters
        ----------
        **parts : Any
            Values by name.

        Returns
        -------
        bool
            True if training continues from a checkpoint.
        """
        return self._does.register(parts)

    def epochs(self, count: int | None = None) -> Iterator[int]:
        """Iterate over epochs from 0; after an interruption, from the interrupted one.

        Parameters
        ----------
        count : int, optional
            Number of epochs; by default that of `--epochs`.

        Returns
        -------
        iterator of int
            Number of each epoch.
        """
        return self._does.epochs(count)

    def steps(self, count: int | None = None) -> Iterator[int]:
        """Iterate over steps from 0, for a loop without data; after an interruption, from the interrupted one.

        Parameters
        ----------
        count : int, optional
            Number of steps; by default that of `--steps`.

        Returns
        -------
        iterator of int
            Number of each step.
        """
        return self._does.steps(count)

    def loader(
        self,
        dataset: Any,
        batch_size: int | None = None,
        *,
        shuffle: bool | None = None,
        collate: Any = None,
        workers: int | None = None,
        repeat: bool = False,
        validation: bool = False,
    ) -> Any:
        """Return an iterable of this slot's batches, on its device; after an interruption it continues where it was.

        Each batch is a step. Within `run.epochs` it makes one pass over the data; outside, as many passes as `--epochs`
        says. The order follows from `--seed` and the epoch, whatever the number of slots.

        Parameters
        ----------
        dataset : Dataset, DataLoader or iterable
            Samples. A DataLoader's dataset, batch size, collate function, sampler and workers are taken.
        batch_size : int, optional
            Samples of a batch over all slots; by default that of `--batch-size`.
        shuffle : bool, optional
            Whether the order is random. By default it is, except for a DataLoader that has its samples in order.
        collate : callable, optional
            Function that makes a batch of a list of samples.
        workers : int, optional
            Processes that load samples; by default `--loader-workers`.
        repeat : bool, default False
            Begin anew after the last batch, without an end.
        validation : bool, default False
            Read in order, without steps. Each sample is read once, on one of the slots.

        Returns
        -------
        iterable
            Batches.

        Raises
        ------
        InvalidDefinition
            `dataset` cannot be read.
        """
        return self._does.loader(dataset, batch_size, shuffle, collate, workers, repeat, validation)

    def report(
        self,
        metrics: Mapping[str, Any] | None = None,
        /,
        *,
        step: int | None = None,
        validation: bool = False,
        **values: Any,
    ) -> None:
        """Report metrics; they are averaged over the slots, weighted by their numbers of samples.

        Parameters
        ----------
        metrics : mapping of str to number, optional
            Values by name, for names that are no Python identifiers.
        step : int, optional
            Step of the values in curves; by default the number of steps taken, including the current one.
        validation : bool, default False
            True for validation metrics: `--metric` chooses the best checkpoint by them, and a search compares them.
        **values : number
            Values by name: numbers, or tensors of one element.
        """
        self._does.report({**(metrics or {}), **values}, step, validation)

    def log(
        self,
        text: str = "",
        /,
        *,
        step: int | None = None,
        epoch: int | None = None,
        validation: bool = False,
        **values: Any,
    ) -> None:
        """Add a note to the trial, or report metrics by name from a program that counts its own steps.

        Parameters
        ----------
        text : str, optional
            Text for the user.
        step : int, optional
            Step of the values. If no report of a program names a step, each report counts as one step.
        epoch : int, optional
            Epoch that the values are of. The first one that a program names counts as its first.
        validation : bool, default False
            True for values of a validation. In a shell command, values named like `--metric` always count as such.
        **values : number
            Values by name: numbers, or tensors of one element.

        Examples
        --------
        >>> from daylight import run
        >>> run.log(loss=0.5, step=3)
        training at step 3: loss 0.5
        """
        if text:
            self._does.log(text)
        if values or step is not None or epoch is not None:
            self._does.report(values, step, validation, epoch)

    def checkpoint(self, folder: str | os.PathLike[str] | None = None) -> None:
        """Save a checkpoint at the end of this step, in addition to those of `--checkpoint-every`.

        In a shell command, the checkpoint folder is saved at once, and the call returns when it is committed.

        Parameters
        ----------
        folder : str or PathLike, optional
            For a command: folder whose files are copied into its checkpoint folder first.
        """
        self._does.checkpoint(None if folder is None else Path(folder))

    @property
    def checkpoint_dir(self) -> Path:
        """Return a folder whose files on rank 0 are part of every checkpoint, and are restored after a restart.

        Call it before `restore`: then the checkpoint's files are in the folder.
        """
        return self._does.checkpoint_dir(self.folder)

    def finish(self, **parts: Any) -> None:
        """Register state to be added to the final checkpoint; call it at the end of `train`.

        Parameters
        ----------
        **parts : Any
            Values by name. `model` is the value that `job.load()` returns.
        """
        self._does.register(parts)

    def image(self, name: str, image: Any) -> None:
        """Save an image as the artifact `<name>.png`, which the view displays.

        Parameters
        ----------
        name : str
            Name of the artifact.
        image : Figure, Image, array or Tensor
            Matplotlib figure, PIL image, or numbers of shape (height, width), (height, width, channels) or (channels,
            height, width): floats up to 1, or integers up to 255.

        Raises
        ------
        InvalidRequest
            The name is invalid, or `image` is no image.
        """
        path = self.folder / "image.png"
        write_image(image, path)
        self.artifact(f"{name}.png", path)

    def table(self, name: str, rows: Any) -> None:
        """Save a table as the artifact `<name>.csv`.

        Parameters
        ----------
        name : str
            Name of the artifact.
        rows : DataFrame, list of dict, or dict of list
            Rows, or columns by name.

        Raises
        ------
        InvalidRequest
            The name is invalid, or `rows` is no table.
        """
        path = self.folder / "table.csv"
        write_table(rows, path)
        self.artifact(f"{name}.csv", path)

    # Files

    def artifact(self, name: str, path: str | os.PathLike[str]) -> None:
        """Save a file, or a folder as `<name>.zip`, with the trial, replacing an earlier one of this name.

        Rank 0 saves it; on other ranks nothing happens. A full disk is reported, and training continues.

        Parameters
        ----------
        name : str
            Name of the artifact.
        path : str or PathLike
            File or folder to save.

        Raises
        ------
        InvalidRequest
            The name is invalid, `path` does not exist, or a link leads out of the folder.

        Examples
        --------
        >>> from pathlib import Path
        >>> from daylight import run
        >>> written = Path("notes.txt").write_text("a note")
        >>> run.artifact("notes", "notes.txt")
        run.artifact: notes (text/plain, 6 bytes); an experiment would keep it
        """
        if self._process not in (None, os.getpid()):
            raise InvalidRequest("run.artifact() is called in a loader worker: call it in a function of the definition")
        if self._write is not None:
            self._write(name, Path(path))

    @property
    def folder(self) -> Path:
        """Return a private folder of this process for files to write; concurrent trials share the working folder."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="daylight-"))
            atexit.register(_remove, self._folder, os.getpid())
        return self._folder

    def begin(self, write: Writer | None) -> None:
        """Prepare this object for a training in this process; called by the process that runs a rank.

        Parameters
        ----------
        write : callable, optional
            Function `write(name, path)` that saves an artifact; None to ignore artifacts.
        """
        self._write, self._process = write, os.getpid()
        self._methods = None

    def attach(self, methods: Methods) -> None:
        """Set the implementation of this object's methods; called by the process that runs a rank.

        Parameters
        ----------
        methods : Methods
            Implementation for the training in this process.
        """
        self._methods = methods

    def outside(self, local: Callable[[], Methods]) -> None:
        """Set the implementation for processes outside of jobs; called by the package `daylight`.

        Parameters
        ----------
        local : callable
            Function that returns the methods of a new training.
        """
        self._local = local

    @property
    def _does(self) -> Methods:
        if self._methods is not None:
            return self._methods
        if self._process is not None or self._local is None:
            raise InvalidRequest("run has loops in train(run, ...) alone: here it keeps artifacts, by run.artifact()")
        self._methods = self._local()
        return self._methods

    def __reduce__(self) -> str:
        return "run"  # unpickling returns the `run` of the loading process


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that the user's code has forked
        shutil.rmtree(folder, ignore_errors=True)


def _say(name: str, path: Path) -> None:
    source = look(name, path)
    what = "folder" if source.files is not None else source.media
    print(f"run.artifact: {source.name} ({what}, {source.size} bytes); an experiment would keep it")


run = Run()
