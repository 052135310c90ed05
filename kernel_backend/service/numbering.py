"""Choose numbers for new experiments that neither the database nor any folder uses.

A database that was restored from a backup lacks the newest experiments, whose folders still exist.
"""

from __future__ import annotations

import logging
from pathlib import Path

from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.errors import DaylightError, InvalidRequest
from kernel_backend.home import largest_number, names_of_attempts
from kernel_backend.model.ids import AttemptId, parse_attempt
from kernel_backend.store.base import Store
from kernel_backend.workspaces.base import Workspaces

SHOWN = 3  # attempts that a note lists
_log = logging.getLogger(__name__)


class Numbering:
    """Provider of the number above which new experiments are numbered, so that they do not reuse an old folder.

    A database restored from a backup may lack experiments that have folders. The folders of each owner are read once.
    `note` is a warning if the database is older than the folders in the service's home directory, else "".
    """

    def __init__(self, store: Store, storage: CheckpointStorage, workspaces: Workspaces, home: Path) -> None:
        self._store, self._storage, self._workspaces, self._home = store, storage, workspaces, home
        self._known: dict[str, int] = {}  # largest number in each owner's folders
        self.note = ""

    def look(self) -> None:
        """Compare the largest numbers in the store with those of folders in the service's home directory.

        If the store is older, set `note` to a warning.
        """
        attempts = self._store.newest_attempts()
        newest = max((each.number for each in self._store.experiments(limit=1)), default=0)
        self.note = forgotten(newest, largest_number(self._home), attempts, names_of_attempts(self._home))
        if self.note:
            _log.warning("%s", self.note)

    def beyond(self, owner: str) -> int:
        """Return the largest experiment number among all folders to which this owner's experiments may write."""
        known = self._known.get(owner)
        if known is None:  # without a lock, since one owner's folders or agent may be slow and must not block others
            known = max(largest_number(self._home), self._in_workspace(owner), self._in_checkpoints())
            self._known[owner] = known
        return known

    def _in_workspace(self, owner: str) -> int:
        return self._workspaces.of(owner).largest_number()

    def _in_checkpoints(self) -> int:
        try:
            return self._storage.largest_number()
        except (OSError, DaylightError) as error:  # the numbers in shared checkpoint storage are compared in any case
            _log.warning("the numbers of experiments among the checkpoints are not known: %s", error)
            return 0


def forgotten(newest: int, largest: int, attempts: dict[tuple[int, int], int], names: list[str]) -> str:
    """Return a note about experiments and attempts that have folders but are not in the store; "" if there are none.

    `newest` is the largest experiment number in the store, `largest` the one in the folders; `attempts` maps
    (experiment, trial) to the number of the newest attempt in the store; `names` are the names of attempts' folders.
    """
    unknown = sorted(key for key in map(_key, names) if key and key.number > attempts.get(key[:2], 0))
    if largest <= newest and not unknown:
        return ""
    parts = [f"its newest experiment is #{newest}" if newest else "it knows no experiment"]
    parts += [f"folders are there up to #{largest}"] if largest > newest else []
    if unknown:
        shown = ", ".join(map(str, unknown[-SHOWN:]))
        parts.append(f"and of {len(unknown)} attempts that it does not know ({shown})")
    return (
        f"the database is older than its folders: {', '.join(parts)}. New experiments are numbered from "
        f"#{max(newest, largest) + 1} on, and what is in the others' folders is left alone"
    )


def _key(name: str) -> AttemptId | None:
    try:
        return parse_attempt(name)
    except InvalidRequest:
        return None
