"""Create the engines, checkpoint storage and workspaces of a service, for one Unix user or for several."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from kernel_backend.checkpoints.storage import CheckpointStorage, Identity
from kernel_backend.engines.base import Engine
from kernel_backend.engines.local import LocalEngine
from kernel_backend.engines.make import EngineMaker
from kernel_backend.engines.marks import FolderMarks, Marks
from kernel_backend.engines.pools import Make
from kernel_backend.store.base import Store
from kernel_backend.unix_users.agents import Agents
from kernel_backend.unix_users.checkpoints import UnixUserStorage
from kernel_backend.unix_users.engine import UnixUserEngine
from kernel_backend.unix_users.notes import GangNotes
from kernel_backend.unix_users.slurm import UnixUserPools
from kernel_backend.unix_users.spawn import by_helper
from kernel_backend.unix_users.workspaces import UnixUserWorkspaces
from kernel_backend.workspaces.base import Workspaces
from kernel_backend.workspaces.own import OwnWorkspace, SingleWorkspace

OWNERS = 100_000  # experiments whose owner, which never changes, is cached
TRIALS = 100_000  # trials whose unique id is cached


class Parts(NamedTuple):
    """Parts of a service that depend on whether trainings run as one Unix user or as several."""

    engine: Engine  # of the local pool
    make: Make  # creates the engines of other pools
    marks: Marks
    storage: CheckpointStorage
    workspaces: Workspaces


def of_one(home: Path, store: Store, checkpoints: str, closed: bool = False) -> Parts:
    """Return the engines and storage of a service whose trainings all run as this process's Unix user.

    `checkpoints` is the folder or URL of all checkpoints. If the service is `closed`, no code of users runs here.
    """
    workspace = OwnWorkspace(home, None if "://" in checkpoints else Path(checkpoints), closed)
    storage = CheckpointStorage(checkpoints, _identity(store))
    return Parts(LocalEngine(home), EngineMaker(home), FolderMarks(home), storage, SingleWorkspace(workspace))


def of_unix_users(helper: Path, home: Path, store: Store, checkpoints: str) -> Parts:
    """Return the engines and storage of a service whose trainings run, and store files, as the Unix users who own them.

    `helper` is the socket of the program that starts an agent as such a user. `checkpoints` is the URL of all
    checkpoints; if it is no URL, each owner's checkpoints are in the owner's workspace.
    """
    agents, notes = Agents(by_helper(helper)), GangNotes(home / "gangs")
    owner = lru_cache(OWNERS)(lambda number: store.experiment(number).owner)
    remote, identity = "://" in checkpoints, _identity(store)
    return Parts(
        engine=UnixUserEngine(agents, owner, notes),
        make=UnixUserPools(agents, owner, notes),
        marks=notes,
        storage=CheckpointStorage(checkpoints, identity) if remote else UnixUserStorage(agents, owner, identity),
        workspaces=UnixUserWorkspaces(agents),
    )


def _identity(store: Store) -> Identity:
    return lru_cache(TRIALS)(store.trial_uid)
