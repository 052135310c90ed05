"""Connect `daylight.run` in a process of a shell command with the rank that supervises it, by files in a folder.

The process appends JSON lines to `messages-<rank>.jsonl`; if a message needs an answer, it waits for the file
`answer-<id>`. If the file `leaving` exists, the program must end. Any program, even one without
Daylight, may append metrics to the file of messages, whose path is in `$DAYLIGHT_METRICS`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from kernel_backend.artifacts.run import Run
from kernel_backend.durable import replacing
from kernel_backend.errors import InvalidRequest

FOLDER, METRICS, PARAMS = "DAYLIGHT_PROGRAM", "DAYLIGHT_METRICS", "DAYLIGHT_PARAMS"
CHECKPOINTS = "DAYLIGHT_CHECKPOINTS"
LEAVING = "leaving"
_LOOK_S = 0.01  # between checks for an answer


def messages_file(rank: int) -> str:
    """Return the name of the file to which a rank's processes append messages."""
    return f"messages-{rank}.jsonl"


def answer_file(id: str) -> str:
    """Return the name of the file with the answer to the message `id`."""
    return f"answer-{id}"


class ProgramMethods:
    """Implementation of `daylight.run` in a process of a shell command."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._folder, self._messages = Path(environment[FOLDER]), environment[METRICS]
        self._checkpoints = Path(environment[CHECKPOINTS])
        self.params: dict[str, Any] = json.loads(environment.get(PARAMS, "{}"))
        self.rank, self.world = int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
        self.step, self.epoch = 0, 0
        self._asked = False

    @property
    def device(self) -> NoReturn:
        """Raise InvalidRequest, as a program chooses its own device."""
        self._refuse("device")

    @property
    def should_stop(self) -> bool:
        """Return True once the program must save its state and end."""
        if not self._asked:  # such a program gets more time to end
            self._asked = True
            self._say({"do": "asks"})
        return (self._folder / LEAVING).exists()

    def register(self, parts: Mapping[str, Any]) -> NoReturn:
        """Raise InvalidRequest, as a program saves its own state."""
        self._refuse("restore")

    def loader(self, *settings: Any) -> NoReturn:
        """Raise InvalidRequest, as a program reads its own data."""
        self._refuse("loader")

    def epochs(self, count: int | None) -> Iterator[int]:
        """Raise InvalidRequest, as a program has its own loop."""
        self._refuse("epochs")

    def steps(self, count: int | None) -> Iterator[int]:
        """Raise InvalidRequest, as a program has its own loop."""
        self._refuse("steps")

    def report(self, values: Mapping[str, Any], step: int | None, validation: bool, epoch: int | None = None) -> None:
        """Send metrics, numbers by name, to the supervising rank; `step` and `epoch` are kept if they are given."""
        self.step = self.step if step is None else step
        self.epoch = self.epoch if epoch is None else epoch
        numbers = {str(name): _number(str(name), value) for name, value in values.items()}
        places = {"step": step, "epoch": epoch, "validation": validation or None}
        self._say(numbers | {name: value for name, value in places.items() if value is not None})

    def log(self, text: str) -> None:
        """Add a note to the trial, which is shown to the user."""
        self._say({"do": "note", "text": text})

    def checkpoint(self, folder: Path | None = None) -> None:
        """Save the checkpoint folder as a checkpoint, and wait until it is committed.

        Files of `folder`, if given, are copied into it first. Does nothing on ranks other than 0.
        """
        if self.rank:
            return
        if folder is not None and folder.resolve() != self._checkpoints.resolve():
            shutil.copytree(folder, self._checkpoints, dirs_exist_ok=True, copy_function=_replace)
        self._ask({"do": "checkpoint"})

    def checkpoint_dir(self, below: Path) -> Path:
        """Return the checkpoint folder of the command; `below` is ignored."""
        return self._checkpoints

    def keep(self, name: str, path: Path) -> None:
        """Pass an artifact to the supervising rank, and wait until it is saved."""
        if self.rank == 0:
            self._ask({"do": "artifact", "name": name, "path": str(path.absolute())})

    def _refuse(self, name: str) -> NoReturn:
        raise InvalidRequest(
            f"run.{name} belongs to train(run, ...) in a cell: a command keeps its state in run.checkpoint_dir, and "
            "tells its numbers by run.log(loss=...)"
        )

    def _ask(self, message: dict[str, Any]) -> None:
        """Send a message to the supervising rank, and wait for the answer; raise InvalidRequest if that is an error."""
        id = uuid.uuid4().hex
        answer = self._folder / answer_file(id)
        self._say({**message, "answer": id})
        while not answer.exists():
            time.sleep(_LOOK_S)
        text = answer.read_text()
        answer.unlink(missing_ok=True)
        if text:
            raise InvalidRequest(text)

    def _say(self, message: Mapping[str, Any]) -> None:
        file = os.open(self._messages, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, json.dumps(message).encode() + b"\n")
        finally:
            os.close(file)


def connect(run: Run, environment: Mapping[str, str]) -> None:
    """Connect `run` with the supervising rank if this process belongs to a job that runs a shell command."""
    if FOLDER in environment:
        methods = ProgramMethods(environment)
        run.begin(methods.keep)
        run.attach(methods)


def _number(name: str, value: Any) -> float:
    """Return a number, or the only element of an array or tensor, as a float.

    Raise InvalidRequest for any other value.
    """
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidRequest(f"{name}={value!r:.200}: a metric is a number, or a tensor of one element") from None


def _replace(source: str, target: str) -> str:
    with open(source, "rb") as file, replacing(Path(target)) as copy:
        shutil.copyfileobj(file, copy)
    return target
