"""Access the workspace of this process's Unix user.

The process is a service for one user, or an agent that a service starts as the user.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path

from kernel_backend.artifacts.read import opened, pieces
from kernel_backend.environments.storage import Environments
from kernel_backend.errors import SearchFailed
from kernel_backend.home import (
    LOGS,
    artifact_folder,
    attempt_folder,
    folders_of,
    largest_number,
    numbered_folders,
    sizes_of_experiments,
    stand_in_folder,
    tree_size,
)
from kernel_backend.launch.search_process import ChildSearchProcess
from kernel_backend.model.disk import WorkspaceUsage
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.resources import CLOSED
from kernel_backend.snapshots.archive import unpack
from kernel_backend.snapshots.shipped import Working, working_folder
from kernel_backend.workspaces.base import Contents, SearchClass, SearchClassProcess, Workspace

WITHHELD = ("PYTHONPATH", "PYTHONHOME")  # not passed to processes in a locked environment


class OwnWorkspace:
    """Workspace of this process's user, in folders below `home`."""

    def __init__(self, home: Path, checkpoints: Path | None = None, closed: bool = False) -> None:
        """Create access to the files below `home`.

        `checkpoints` is the folder of checkpoints, by default one in `home`. If the workspace is `closed`, no code of
        its owner is run: neither search classes, nor build scripts of packages, nor interpreters that the owner names.
        """
        self.closed = closed
        self._home = home
        self._checkpoints = checkpoints or home / "checkpoints"
        self.environments = Environments(home, closed)

    def unpack(self, job: LaunchSpec, archive: bytes) -> Working:
        """Unpack `archive`, the code of the attempt `job`, into the attempt's folder; return its working folder."""
        unpack(archive, Path(job.code))
        return working_folder(job, stand_in_folder(self._home, job.experiment, job.trial))

    def largest_number(self) -> int:
        """Return the largest experiment number in the names of this workspace's folders; 0 if there is none."""
        return largest_number(self._home)

    def last_attempt(self, experiment: int, trial: int, since: int) -> int:
        """Return the number of a trial's last attempt: count up from `since` while the next number has a folder."""
        following = (AttemptId(experiment, trial, number) for number in count(since + 1))
        return next(key.number for key in following if not attempt_folder(self._home, key).exists()) - 1

    def usage(self, experiment: int) -> dict[str, int]:
        """Return the disk usage of an experiment in bytes, by kind of folder; links are not followed."""
        found: Counter[str] = Counter()
        for kind, folder in folders_of(self._home, experiment):
            found[kind] += tree_size(folder)
        return dict(found)

    def disk(self) -> WorkspaceUsage:
        """Return the disk usage of all files below the home directory in bytes; links are not followed."""
        room = shutil.disk_usage(self._checkpoints if self._checkpoints.is_dir() else self._home)
        return WorkspaceUsage(
            experiments=sizes_of_experiments({**numbered_folders(self._home), "checkpoints": self._checkpoints}),
            environments=tree_size(self._home / "environments"),
            free=room.free,
            size=room.total,
        )

    def remove(self, experiment: int) -> None:
        """Delete all folders of an experiment except its checkpoints, in the reverse order of `folders_of`.

        The folders of attempts are thus deleted last.
        """
        for _, folder in reversed(folders_of(self._home, experiment)):
            with suppress(FileNotFoundError):
                folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)

    def remove_logs(self, experiment: int) -> None:
        """Empty the folders of an experiment's attempts and of its search class.

        The folders themselves stay, as their names show which numbers were used.
        """
        for kind, folder in folders_of(self._home, experiment):
            if kind in LOGS and not folder.is_symlink():
                for each in folder.iterdir():
                    shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()

    def artifact(self, experiment: int, trial: int, name: str) -> Contents:
        """Return the size and the bytes, in pieces, of an artifact's file, which must not be a link."""
        file = opened(artifact_folder(self._home, experiment, trial), name)
        return Contents(os.fstat(file.fileno()).st_size, pieces(file))

    def asker(self, asked: SearchClass, archive: bytes) -> SearchClassProcess:
        """Unpack the snapshot `archive` of a search class into the folder of the search; return a client of the class.

        The client's first call starts a child process in which the class runs. Raises SearchFailed if the workspace is
        closed.
        """
        if self.closed:
            raise SearchFailed(f"{asked.settings.source or 'the search class'} cannot run: {CLOSED}")
        folder, cwd = self._home / "searches" / str(asked.experiment), Path(asked.cwd)
        unpack(archive, folder / "code")
        withheld = WITHHELD if asked.locked else ()
        return ChildSearchProcess(
            asked.python,
            folder / "code",
            cwd if cwd.is_dir() else folder / "code",
            asked.settings,
            asked.space,
            folder / "class.log",
            {name: value for name, value in os.environ.items() if name not in withheld},
        )


class SingleWorkspace:
    """Workspace that all owners share, for a service of one user, or of users who trust each other."""

    def __init__(self, workspace: OwnWorkspace) -> None:
        self._workspace, self.closed = workspace, workspace.closed

    def check(self, owner: str) -> None:
        """Do nothing: every owner may run trainings."""

    def of(self, owner: str) -> Workspace:
        """Return the one workspace that all owners share."""
        return self._workspace
