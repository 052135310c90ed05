"""Define the interface of a workspace, which is the folder with all files of one owner's trainings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kernel_backend.environments.lock import Lock
from kernel_backend.model.disk import WorkspaceUsage
from kernel_backend.model.environments import Interpreter
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.record import Record, Value
from kernel_backend.model.search.records import Settings
from kernel_backend.model.search.space import Space
from kernel_backend.model.snapshot import Environment
from kernel_backend.snapshots.shipped import Working

LARGEST_NUMBER = 9_999_999  # longer names of folders are no experiment numbers (`home.largest_of`)


class SearchClass(Record):
    """Search class that a notebook cell defines, with the interpreter, settings and search space to run it with."""

    experiment: int
    python: str
    cwd: str
    locked: bool  # the interpreter is that of a locked environment
    settings: Settings
    space: Space


class SearchClassProcess(Protocol):
    """Client of a process in which a user's search class runs; each call raises SearchFailed if the class fails."""

    def interval(self) -> Any:
        """Return the search class's attribute `interval`, unvalidated: after how many units each trial is judged.

        A unit is an epoch or a step. None if the class has no such attribute: its trials then train to the end.
        """

    def ask(self, trial: int) -> Any:
        """Call the method `ask` of the search class, and return its result.

        It is the hyperparameters of the new trial `trial`, the number of a paused trial to resume, or None for nothing.
        """

    def tell(self, trial: int, params: dict[str, Value], unit: int, value: float) -> Any:
        """Call the method `tell` of the search class with a result of a trial, and return what it returns.

        `value` is the metric of the trial, which has the hyperparameters `params`, after `unit` epochs or steps. The
        result is "pause", "stop", or None to continue the trial.
        """

    def close(self) -> None:
        """End the process in which the search class runs."""


class Contents(NamedTuple):
    """Size of a file in bytes, and an iterator that reads it piece by piece."""

    size: int
    pieces: Iterator[bytes]


class EnvironmentStorage(Protocol):
    """Store of the Python environments of one owner; all methods block, some for minutes."""

    def interpreter(self, python: str, packages: Sequence[str]) -> Interpreter:
        """Return the interpreter `python` or, if this machine does not have it, that of the service.

        `packages` are those that a training imports. If the service's interpreter is returned, the record names those
        of them that it lacks.
        """

    def lock(self, environment: Environment) -> Lock | None:
        """Return the stored lock of an environment; None if there is none."""

    def make_lock(self, environment: Environment, python: Path) -> Lock:
        """Return the lock of an environment; if there is none, make and store it.

        `python` is the interpreter whose environment was recorded. Raises NoEnvironment.
        """

    def python(self, environment: Environment) -> Path | None:
        """Return the interpreter of an environment; None unless it is completely built."""

    def version(self, environment: Environment) -> str | None:
        """Return the Python version with which an environment was built; None if unknown."""

    def build(self, environment: Environment, python: Path) -> Path:
        """Return the interpreter of an environment, after locking and building it if needed; raise NoEnvironment."""

    def present(self, python: Path) -> Environment:
        """Return a description of an interpreter's present environment; raise NoEnvironment if it cannot be run."""


class Workspace(Protocol):
    """Workspace of one owner: folders of attempts, artifacts, search classes and environments."""

    @property
    def environments(self) -> EnvironmentStorage:
        """Return the owner's Python environments."""

    def unpack(self, job: LaunchSpec, archive: bytes) -> Working:
        """Unpack `archive`, the code of the attempt `job`; return its working folder, with a note for the user."""

    def largest_number(self) -> int:
        """Return the largest experiment number in the names of this workspace's folders; 0 if there is none."""

    def last_attempt(self, experiment: int, trial: int, since: int) -> int:
        """Return the last attempt number of a trial, counted up from `since` while the next attempt has a folder."""

    def usage(self, experiment: int) -> dict[str, int]:
        """Return the disk usage of an experiment in bytes, by kind of folder (such as `attempts`).

        Checkpoints are not included.
        """

    def disk(self) -> WorkspaceUsage:
        """Return the disk usage of all experiments and environments, and the free space of the file system."""

    def remove(self, experiment: int) -> None:
        """Delete an experiment's folders; raises OSError if one cannot be deleted."""

    def remove_logs(self, experiment: int) -> None:
        """Delete the logs, records and unpacked code of an ended experiment; its empty folders stay."""

    def artifact(self, experiment: int, trial: int, name: str) -> Contents:
        """Return the size and the bytes, in pieces, of an artifact's file; raise NotFound if it does not exist."""

    def asker(self, asked: SearchClass, archive: bytes) -> SearchClassProcess:
        """Return a client of the search class `asked`, whose snapshot has the bytes `archive`.

        The client's first call starts the process in which the class runs.
        """


class Workspaces(Protocol):
    """Access to the workspaces of all owners."""

    @property
    def closed(self) -> bool:
        """Return whether no code of the owners is run on this machine."""

    def check(self, owner: str) -> None:
        """Check that an owner's trainings can run on this machine.

        Raises Forbidden with the reason, or PlaceUnavailable if they cannot at present.
        """

    def of(self, owner: str) -> Workspace:
        """Return an owner's workspace."""
