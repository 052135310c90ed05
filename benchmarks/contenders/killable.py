"""Run trainings of `breakable` that may be killed at any time, and read their logs."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from contenders import breakable
from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.checkpoints.writer import load_model
from kernel_backend.model.states import EXPERIMENT_ENDED
from kernel_backend.model.trial import checkpoint_step
from tests.support.world import World

OPTIONS: dict[str, Any] = {
    "slots": 1,
    "epochs": breakable.EPOCHS,
    "batch_size": breakable.BATCH_SIZE,
    "ema": breakable.DECAY,
    "amp": "fp16",
    "clip": breakable.CLIP,
    "loader_workers": breakable.WORKERS,
    "checkpoint_every": {"steps": breakable.EVERY},
    "max_restarts": 1000,
}
LOOK_S = 0.2
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "lightning", "accelerate", "torchdata.stateful_dataloader"])


class Step(NamedTuple):
    """A training step's epoch and the indices of its samples."""

    epoch: int
    samples: tuple[int, ...]


class Attempt(NamedTuple):
    """Record one process of a training: the step at which it resumed, and the steps that it trained."""

    pid: int
    resumed: int
    steps: list[Step]

    @property
    def reached(self) -> int:
        """Return the newest step that was begun, counted from 1."""
        return self.resumed + len(self.steps)


class Outcome(NamedTuple):
    """Record the final weights of a training and its attempts, or the error if it failed."""

    weights: dict[str, torch.Tensor]
    attempts: list[Attempt]
    problem: str = ""  # why it did not come to its end


class Training(Protocol):
    """Base class of a training that is running."""

    def over(self) -> bool:
        """Return True once the training has completed or has failed for good."""

    def attempts(self) -> list[Attempt]:
        """Return the attempts of the training so far."""

    def outcome(self) -> Outcome:
        """Return the final weights, the attempts and the error, if any."""


class Peer:
    """Training by one of the functions of `survivors`, whose process is started again each time it is killed."""

    def __init__(self, train: Callable[[Path, str], None], folder: Path) -> None:
        folder.mkdir(parents=True)
        self._train, self._folder = train, folder
        self.log = folder / "log"
        self.log.touch()
        self._start()

    def over(self) -> bool:
        """Return True once the training has completed or failed; restart its process if that was killed."""
        code = self._process.exitcode
        if code == -signal.SIGKILL:
            self._start()
        return code not in (None, -signal.SIGKILL)

    def attempts(self) -> list[Attempt]:
        """Return the attempts of the training so far."""
        found: list[Attempt] = []
        for pid, words in _lines(self.log):
            if words[0] == "resumed":
                found.append(Attempt(pid, int(words[1]), []))
            else:
                found[-1].steps.append(_step(words))
        return found

    def outcome(self) -> Outcome:
        """Return the final weights and the attempts, or the last line of the error output."""
        if self._process.exitcode != 0:
            words = (self._folder / "errors").read_text().strip().splitlines()
            return Outcome({}, self.attempts(), words[-1] if words else f"exit code {self._process.exitcode}")
        return Outcome(torch.load(self._folder / "final.pt"), self.attempts())

    def _start(self) -> None:
        self._process = CONTEXT.Process(target=_be_a_peer, args=(self._train, self._folder, str(self.log)))
        self._process.start()


class Daylight:
    """Training that is submitted to Daylight, which restarts it by itself."""

    def __init__(self, world: World, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._world = world
        self.log = folder / "log"
        self.log.touch()
        source = Path(breakable.__file__).read_text()
        self._number = world.submit(source, log=str(self.log), **OPTIONS).experiment.number
        self._resumed: dict[int, int] = {}  # by process
        self._looked = 0.0

    def over(self) -> bool:
        """Return True once the experiment has ended; query the service at most once in LOOK_S seconds."""
        if time.monotonic() - self._looked < LOOK_S:
            return False
        self._looked = time.monotonic()
        return self._world.overview(self._number).experiment.state in EXPERIMENT_ENDED

    def attempts(self) -> list[Attempt]:
        """Return the attempts so far that have begun a step."""
        found: dict[int, list[Step]] = {}
        for pid, words in _lines(self.log):
            found.setdefault(pid, []).append(_step(words))
        if not found.keys() <= self._resumed.keys():
            self._look()
        return [Attempt(pid, self._resumed[pid], steps) for pid, steps in found.items() if pid in self._resumed]

    def _look(self) -> None:
        """Find the step at which each attempt resumed."""
        for attempt in self._world.overview(self._number).attempts:
            ranks = self._world.home / "attempts" / f"{self._number}.1-{attempt.number}" / "ranks.json"
            if ranks.exists():
                self._resumed[json.loads(ranks.read_text())["0"]] = checkpoint_step(attempt.resume_from)

    def outcome(self) -> Outcome:
        """Return the weights of the last checkpoint and the attempts, or the error of the last attempt."""
        overview = self._world.overview(self._number)
        if overview.experiment.state != "completed":
            failure = overview.attempts[-1].failure
            return Outcome({}, self.attempts(), failure.message if failure else overview.experiment.state)
        place = CheckpointStorage(str(self._world.home / "checkpoints")).open(self._number, 1)
        return Outcome(load_model(place, place.committed()[-1]), self.attempts())


def _lines(log: Path) -> list[tuple[int, list[str]]]:
    """Return the complete lines of a log as pairs of process id and text."""
    whole = log.read_text().rpartition("\n")[0]
    found = (line.split() for line in whole.splitlines())
    return [(int(words[0]), words[1:]) for words in found]


def _step(words: Sequence[str]) -> Step:
    epoch, *samples = map(int, words)
    return Step(epoch, tuple(samples))


def _be_a_peer(train: Callable[[Path, str], None], folder: Path, log: str) -> None:
    errors = os.open(folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(errors, 2)
    multiprocessing.set_start_method("fork", force=True)  # of loader workers, as in a plain script
    train(folder, log)
