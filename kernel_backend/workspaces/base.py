"""What the service has done in the area of an owner: the folder with all that their trainings read and write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kernel_backend.environments.lock import Lock
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.record import Record, Value
from kernel_backend.model.search.records import Settings
from kernel_backend.model.search.space import Space
from kernel_backend.model.snapshot import Environment
from kernel_backend.snapshots.shipped import Working

LARGEST_NUMBER = 9_999_999  # of an experiment by its folder; what has more digits is none (`home.largest_of`)


class SearchClass(Record):
    """The search class of a cell, and what it is asked about."""

    experiment: int
    python: str
    cwd: str
    locked: bool  # the interpreter is a locked environment's
    settings: Settings
    space: Space


class SearchClassProcess(Protocol):
    """A search class in a process of its own; each question raises SearchFailed where the class fails."""

    def interval(self) -> Any:
        """Its attribute of this name."""

    def ask(self, trial: int) -> Any:
        """What its `ask` answers."""

    def tell(self, trial: int, params: dict[str, Value], unit: int, value: float) -> Any:
        """What its `tell` answers."""

    def close(self) -> None:
        """End the process."""


class Contents(NamedTuple):
    """How many bytes a file has, and these in pieces."""

    size: int
    pieces: Iterator[bytes]


class EnvironmentStorage(Protocol):
    """The environments of an owner (see `environments.kept`); all of it blocks for as long as it takes."""

    def lock(self, environment: Environment) -> Lock | None:
        """The stored lock of an environment; None before it was made."""

    def make_lock(self, environment: Environment, python: Path) -> Lock:
        """The lock of an environment, made and stored where there is none; raises NoEnvironment."""

    def python(self, environment: Environment) -> Path | None:
        """The interpreter of an environment that is built and whole; None of any other."""

    def version(self, environment: Environment) -> str | None:
        """The version of the Python that an environment was built with; None where that is not told."""

    def build(self, environment: Environment, python: Path) -> Path:
        """The interpreter of an environment, locked and built where it is not; raises NoEnvironment."""

    def present(self, python: Path) -> Environment:
        """The environment of an interpreter as it is now; raises NoEnvironment where it cannot be run."""


class Workspace(Protocol):
    """The area of one owner."""

    @property
    def environments(self) -> EnvironmentStorage:
        """Their environments."""

    def unpack(self, job: LaunchSpec, archive: bytes) -> Working:
        """Put the code of an attempt in its place; where it runs, and what a person should know about that."""

    def largest_number(self) -> int:
        """Return the largest number of an experiment that any folder here names; 0 where none does."""

    def last_attempt(self, experiment: int, trial: int, since: int) -> int:
        """Return the last of the attempts that follow number `since` one by one and have a folder; else `since`."""

    def artifact(self, experiment: int, trial: int, name: str) -> Contents:
        """The bytes of an artifact; raises NotFound where its file is gone."""

    def asker(self, asked: SearchClass, archive: bytes) -> SearchClassProcess:
        """A search class of a snapshot, whose process is started by the first question."""


class Workspaces(Protocol):
    """The areas of all owners."""

    def check(self, owner: str) -> None:
        """Pass where trainings of this owner can run here; raises Forbidden with why not, or PlaceUnavailable."""

    def of(self, owner: str) -> Workspace:
        """An owner's area."""
